package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
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

// badInput: while a job runs, node b connects to every port that the job's process on node a listens at and sends what no
// peer would. The job goes on, ends with nothing wrong, and the
// plugin has said who was refused.
func (s *session) badInput(t *testing.T, ctx context.Context, l *Lab) error {
	port := s.nextPort()
	job := make(chan error, 1)
	go func() {
		results, err := s.driverAt(t, ctx, l, port, "--work", "soak", "--duration", "20", "--max", "1M")
		from := "from=" + s.mesh.ManagementAddr("b").String()
		if err == nil && !regexp.MustCompile("NCCL WARN .*refused a connection.*"+from).MatchString(results[0].Output) {
			err = fmt.Errorf("no warning of a refused connection %s on node a:\n%s", from, results[0].Output)
		}
		job <- err
	}()
	r, err := l.Machine("a").Run(ctx, `
for i in $(seq 300); do # the job's own meeting point is not the plugin's port
	ports=$(ss -Hltnp | sed -n 's/^LISTEN *[0-9]* *[0-9]* *[^ ]*:\([0-9]*\) .*"netdriver".*/\1/p' | grep -vx `+fmt.Sprint(port)+` | sort -u)
	[ -n "$ports" ] && break
	sleep 0.1
done
echo ports $ports`)
	ports := regexp.MustCompile(`(?m)^ports( \d+)+$`).FindString(r.Output)
	if err == nil && ports == "" {
		err = fmt.Errorf("the job listens at no port on node a:\n%s", r.Output)
	}
	if err == nil {
		r, err = l.Machine("b").Run(ctx, "for port in "+strings.TrimPrefix(ports, "ports ")+"; do\n"+`
	for i in 1 2 3; do
		head -c 300 /dev/urandom >/dev/tcp/node-a/$port          # random
		head -c 3 /dev/urandom >/dev/tcp/node-a/$port            # truncated
		head -c 2000000 /dev/zero >/dev/tcp/node-a/$port         # oversized
		{ printf '\377\377\377\377'; sleep 0.5; } >/dev/tcp/node-a/$port # a length and no more
		: >/dev/tcp/node-a/$port                                 # nothing
		[ $? = 0 ] && n=$((n+1))
	done
	exec 5<>/dev/tcp/node-a/$port                                # held open
done 2>/dev/null
sleep 1
echo reached $n times
[ "${n:-0}" -gt 0 ]`)
		err = errors.Join(err, failed([]Result{r}))
		t.Log(strings.TrimSpace(r.Output))
	}
	return errors.Join(err, <-job)
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
