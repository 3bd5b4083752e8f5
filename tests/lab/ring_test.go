package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// TestRing is of four machines in a ring: opposite ones talk through those between them, by the kernel's own queue pairs on
// every hop. No lane may be a socket.
func TestRing(t *testing.T) {
	require.Full(t, "tests/lab TestTriangle and tests/nccl TestRings")
	said := newLog()
	s := newSession(t, Ring(), built()...)
	needBuilt(t)
	s.cfg.Env = map[string]string{"NCCL_MESH_TRANSPORT": "rdma", "NCCL_DEBUG": "INFO"}
	s.cfg.Log = said.add
	s.step(t, "all to all", s.opposite)
	s.step(t, "a relay is killed", func(t *testing.T, ctx context.Context, l *Lab) error { return s.killRelay(t, ctx, l, said) })
	s.step(t, "a cable is out", func(t *testing.T, ctx context.Context, l *Lab) error { return s.longWay(t, ctx, l, said) })
}

// opposite: an all-to-all of all four, in which each pair that shares no cable has lanes through the nodes beside it, and no
// other pair has. Somewhere both ways round are used at once: a node that is slow to answer costs a pair one of them, not the job.
func (s *session) opposite(t *testing.T, ctx context.Context, l *Lab) error {
	results, err := s.driverAt(t, ctx, l, s.nextPort(), "--work", "alltoall", "--min", "8", "--max", "2M", "--factor", "64", "--iters", "2", "--warmup", "0")
	if err != nil {
		return err
	}
	between := map[string][]string{"ac": {"b", "d"}, "bd": {"a", "c"}, "ca": {"b", "d"}, "db": {"a", "c"}}
	both := 0
	for _, r := range results {
		for _, to := range s.mesh.Machines {
			line := regexp.MustCompile(Host(r.Machine) + " -> " + Host(to) + ` conn \d+: lane .*`).FindString(r.Output)
			var through []string
			for _, lane := range strings.Split(line, ", lane ") {
				if _, via, ok := strings.Cut(lane, " relayed through "); ok {
					through = append(through, via)
				}
			}
			ways := between[r.Machine+to]
			switch {
			case line == "" || strings.Contains(line, "tcp"):
				err = fmt.Errorf("%s and %s: no lanes over RDMA: %q", Host(r.Machine), Host(to), line)
			case ways == nil && len(through) > 0, ways != nil && len(through) == 0, len(through) > len(ways):
				err = fmt.Errorf("%s and %s talk through %q, of %q", Host(r.Machine), Host(to), through, ways)
			case len(through) == 2:
				both++
			}
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, outputs(results))
			}
			if ways != nil {
				t.Logf("%s -> %s through %s", Host(r.Machine), Host(to), strings.Join(through, ", "))
			}
		}
	}
	if both == 0 {
		return fmt.Errorf("no pair uses both ways round:\n%s", outputs(results))
	}
	return nil
}

// killRelay: nodes a and c talk while processes of other jobs on b and d, which do nothing else by then, carry for them; the
// one that does is killed, or one of both: the job goes on through the other.
func (s *session) killRelay(t *testing.T, ctx context.Context, l *Lab, said *log) error {
	over, stop := context.WithCancel(ctx)
	defer stop()
	for _, m := range []string{"b", "d"} {
		said.skip()
		relay := s.begin(over, l, []string{m}, "--work", "storm", "--connections", "1", "--duration", "900")
		defer func() { <-relay.done }()
		defer stop()
		if _, err := said.await(ctx, relay, Host(m)+` -> .* closed after`); err != nil {
			stop()
			<-relay.done
			return errors.Join(err, relay.err)
		}
	}
	said.skip()
	job := s.soak(ctx, l, "25", "a", "c")
	way, err := said.await(ctx, job, `node-a -> node-c conn \d+: lane 0 \S+ -> \S+ relayed through node-([bd])(, lane 1)?`)
	if err != nil {
		return errors.Join(err, job.wait())
	}
	time.Sleep(3 * time.Second) // of traffic
	_, err = l.Machine(way[1]).Run(ctx, "busybox killall -KILL "+DriverFile)
	begin := time.Now()
	want := "through " + Host(way[1]) + `.*; its traffic goes over the 1 lane left`
	if way[2] == "" {
		want = `through node-[bd] takes the place of .* through ` + Host(way[1])
	}
	if err == nil {
		_, err = said.await(ctx, job, "node-a -> node-c conn .*"+want)
	}
	t.Logf("the process on %s was killed; after %.1f s its traffic went elsewhere", Host(way[1]), time.Since(begin).Seconds())
	return errors.Join(err, job.wait())
}

// longWay: the cable between a and b is pulled in a job of all four: the two talk the long way round until it is plugged in
// again, and the opposite ones over the way that is left.
func (s *session) longWay(t *testing.T, ctx context.Context, l *Lab, said *log) error {
	said.skip()
	job := s.soak(ctx, l, "60", s.mesh.Machines...)
	_, err := said.await(ctx, job, `node-a -> node-b conn \d+: lane 0 rxe100`)
	if err != nil {
		return errors.Join(err, job.wait())
	}
	time.Sleep(3 * time.Second) // of traffic
	begin := time.Now()
	step := func(up bool, want string) {
		if err == nil {
			err = l.SetCable("ab", up)
		}
		if err == nil {
			_, err = said.await(ctx, job, "node-a -> node-b conn .*"+want)
		}
		t.Logf("cable up %v; %q after %.1f s", up, want, time.Since(begin).Seconds())
	}
	step(false, `through node-d and node-c has joined`)
	step(true, `lane \d rxe100:1 -> rxe100:1 has come back`)
	return errors.Join(err, l.SetCable("ab", true), job.wait())
}

// running is a job that goes on beside the test.
type running struct {
	done    chan struct{}
	results []Result
	err     error
	ranks   int
}

// begin starts the driver on the named machines.
func (s *session) begin(ctx context.Context, l *Lab, on []string, args ...string) *running {
	j := &running{done: make(chan struct{}), ranks: len(on)}
	script := DriverJob{Args: append(args, "--timeout", "240"), Port: s.nextPort(), On: on}.Script(s.mesh)
	go func() {
		defer close(j.done)
		j.results, j.err = run(ctx, l, script)
	}()
	return j
}

// soak starts a soak of so many seconds on the named machines, whose connections stay.
func (s *session) soak(ctx context.Context, l *Lab, seconds string, on ...string) *running {
	return s.begin(ctx, l, on, "--work", "soak", "--max", "1M", "--reopen", "1000000", "--duration", seconds)
}

// wait returns what was wrong with the job.
func (j *running) wait() error {
	<-j.done
	return errors.Join(j.err, ranksRight(j.results, j.ranks))
}

// log is what scripts print, as they do.
type log struct {
	mu    sync.Mutex
	lines []string      // that were not looked at
	more  chan struct{} // closed, and made anew, with each line
}

func newLog() *log { return &log{more: make(chan struct{})} }

func (l *log) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	close(l.more)
	l.more = make(chan struct{})
}

// skip forgets what has been printed.
func (l *log) skip() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// next looks through what has been printed for a line that matches, and returns its groups.
func (l *log) next(re *regexp.Regexp) (match []string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.lines) > 0 && match == nil {
		match = re.FindStringSubmatch(l.lines[0])
		l.lines = l.lines[1:]
	}
	return match, l.more
}

// await returns the groups of the next line that matches, or fails when the job is over without.
func (l *log) await(ctx context.Context, job *running, pattern string) ([]string, error) {
	re := regexp.MustCompile(pattern)
	for over := false; ; {
		match, more := l.next(re)
		switch {
		case match != nil:
			return match, nil
		case over:
			return nil, fmt.Errorf("the job ended, and nobody had said %q:\n%s", pattern, outputs(job.results))
		}
		select {
		case <-more:
		case <-job.done:
			over = true
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody says %q: %w", pattern, context.Cause(ctx))
		}
	}
}
