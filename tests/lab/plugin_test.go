package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// die: the rank on node c kills itself in mid-transfer. The other two are told in time: a second on real machines.
func (s *session) die(t *testing.T, ctx context.Context, l *Lab, args ...string) error {
	scale, err := strconv.ParseFloat(l.accel.TimeScale(), 64)
	if err != nil {
		return err
	}
	args = append(args, "--work", "die", "--die-rank", "2", "--die-limit-ms", fmt.Sprint(1000*scale), "--timeout", "240")
	results, err := l.RunAll(ctx, DriverJob{Args: args, Port: s.nextPort()}.Script(s.mesh))
	if err != nil {
		return err
	}
	for _, r := range results {
		want := 0
		if r.Machine == "c" {
			want = 128 + 9 // killed
		}
		if r.Status != want {
			err = errors.Join(err, fmt.Errorf("%s: status %d, expected %d", Host(r.Machine), r.Status, want))
		}
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, outputs(results))
	}
	t.Log(results[0].Output)
	return nil
}

// contract: every case that the driver knows of NCCL's contract passes on every rank.
func (s *session) contract(t *testing.T, ctx context.Context, l *Lab, version string) error {
	results, err := s.driverAt(t, ctx, l, s.nextPort(), "--api", version, "--work", "contract")
	if err != nil {
		return err
	}
	const least = 20 // cases
	passed, failed := strings.Count(results[0].Output, "PASS"), strings.Count(outputs(results), "FAIL")
	if passed < least || failed != 0 {
		return fmt.Errorf("%d cases passed, expected at least %d, and %d failed:\n%s", passed, least, failed, outputs(results))
	}
	return nil
}

// cableUnderLoad: a cable goes out and in again while a soak runs: where it is the only one the kernel's queue pairs send
// again, or others take their places; what each of its two nodes sends itself goes over its other port and comes back; and the job
// ends with nothing wrong.
func (s *session) cableUnderLoad(t *testing.T, ctx context.Context, l *Lab) error {
	const said, enough = "/tmp/soak.log", "/tmp/soak.enough"
	type outcome struct {
		results []Result
		err     error
	}
	port, job := s.nextPort(), make(chan outcome, 1)
	go func() {
		d := DriverJob{Port: port, Args: []string{"--work", "soak", "--until", enough, "--progress", "1", "--reopen", "1000000000", "--max", "1M", "--timeout", "240"}}
		results, err := run(ctx, l, "exec > >(tee "+said+") 2>&1\n"+d.Script(s.mesh))
		job <- outcome{results, err}
	}()
	// await waits until a node has said something once more than it had.
	await := func(node, what string, had int) error {
		r, err := l.Machine(node).Run(ctx, fmt.Sprintf(`
for i in $(seq 1200); do
	[ "$(grep -cs %s %s)" -gt %d ] && exit 0
	sleep 0.1
done
cat %[2]s; exit 1`, quote(what), said, had))
		return errors.Join(err, failed([]Result{r}))
	}
	const round, left, back = "^# soak: .* messages", "went down; check the cable; its traffic goes over", "has come back"
	err := await("a", round, 0) // "# soak: 3 ranks ..." is none
	for _, step := range []struct {
		plugged bool
		says    string
	}{{false, left}, {true, back}} {
		err = errors.Join(err, l.SetCable("ab", step.plugged))
		for _, node := range []string{"a", "b"} {
			err = errors.Join(err, await(node, step.says, 0))
		}
		r, failure := l.Machine("a").Run(ctx, fmt.Sprintf("grep -c %s %s", quote(round), said))
		rounds, _ := strconv.Atoi(strings.TrimSpace(r.Output))
		err = errors.Join(err, failure, await("a", round, rounds+1)) // one that has begun since, and is over
	}
	_, failure := l.Machine("a").Run(ctx, ": >"+enough) // which rank 0 is on
	o := <-job
	if err = errors.Join(err, failure, o.err, ranksRight(o.results, len(s.mesh.Machines))); err != nil {
		return err
	}
	t.Log(o.results[0].Output)
	return nil
}
