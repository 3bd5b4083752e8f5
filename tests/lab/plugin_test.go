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
