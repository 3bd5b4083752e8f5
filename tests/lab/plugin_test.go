package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
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

// cableUnderLoad: a cable goes out for a moment and in again while a soak runs: where it is the only one the kernel's queue pairs send
// again, or others take their places; what each of its two nodes sends itself goes over its other port and comes back; and the job
// ends with nothing wrong.
func (s *session) cableUnderLoad(t *testing.T, ctx context.Context, l *Lab) error {
	port := s.nextPort()
	type outcome struct {
		results []Result
		err     error
	}
	job := make(chan outcome, 1)
	go func() {
		results, err := s.driverAt(t, ctx, l, port, "--work", "soak", "--duration", "30", "--max", "1M")
		job <- outcome{results, err}
	}()
	// Its own meeting point and the plugin's port: the ranks have begun.
	r, err := l.Machine("a").Run(ctx, `
for i in $(seq 600); do
	[ "$(ss -Htnp state established | grep -c netdriver)" -ge 6 ] && exit 0
	sleep 0.1
done
ss -Htnp; exit 1`)
	err = errors.Join(err, failed([]Result{r}))
	for range 2 {
		time.Sleep(4 * time.Second) // of traffic
		err = errors.Join(err, l.SetCable("ab", false))
		time.Sleep(2 * time.Second)
		err = errors.Join(err, l.SetCable("ab", true))
	}
	o := <-job
	if err = errors.Join(err, o.err); err != nil {
		return err
	}
	for _, m := range []int{0, 1} { // nodes a and b
		for _, want := range []string{"went down; check the cable; its traffic goes over", "has come back"} {
			if !strings.Contains(o.results[m].Output, want) {
				return fmt.Errorf("node %s does not say %q:\n%s", o.results[m].Machine, want, outputs(o.results))
			}
		}
	}
	t.Log(o.results[0].Output)
	return nil
}
