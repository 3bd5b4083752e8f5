package mesh

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/draw"
)

// A Job is a set of processes with one rank each, and the connections between the ranks.
type Job struct {
	Pauses float64 // share of the messages before which the sender computes for a while
	Window int     // messages of a connection that are under way at most
	Group  int     // messages that one irecv receives at most

	// Begun is called once, when the first message of each connection is posted. It may not let time pass.
	Begun func()
	quiet atomic.Int32 // connections without a message so far

	world *World
	draws *draw.Stream
	ranks []*Rank
	over  sync.WaitGroup
}

// NewJob starts a process with the settings on each of the machines, and initialises the plugin in it.
func (w *World) NewJob(settings map[string]string, on ...*Machine) *Job {
	j := &Job{Pauses: 0.5, Window: window, Group: group, world: w, draws: w.Bus.Source("job").Stream}
	for i, m := range on {
		p := m.Start(settings)
		r := &Rank{Process: p, number: i, pause: pause{source: w.Bus.Source(fmt.Sprintf("rank %d", i)), gate: p.gate}}
		p.ranks = append(p.ranks, r)
		j.ranks = append(j.ranks, r)
	}
	var inits sync.WaitGroup
	for _, r := range j.ranks {
		inits.Go(func() {
			r.source.Sleep(r.source.Between(0, 50*time.Millisecond))
			r.Process.gate.Wait()
			r.err = r.Init()
		})
	}
	inits.Wait()
	j.must("init")
	return j
}

// must ends the test, with all logs, when a rank has failed. what names the phase of the job in the message.
func (j *Job) must(what string) {
	j.world.T.Helper()
	for _, r := range j.ranks {
		if r.err != nil {
			j.world.T.Errorf("%s: rank %d: %v", what, r.number, r.err)
		}
	}
	if j.world.T.Failed() {
		j.world.T.Fatal(j.Logs())
	}
}

// Logs returns the log lines of all processes, each with its virtual time, sorted as text.
func (j *Job) Logs() string {
	var all []string
	for _, r := range j.ranks {
		all = append(all, r.Log())
	}
	lines := strings.Split(strings.Join(all, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Connect makes a connection from one rank to another that carries n messages of up to most bytes.
func (j *Job) Connect(from, to, n, most int) {
	name := fmt.Sprintf("connection %d to %d", from, to)
	c := &connection{name: name, from: j.ranks[from], to: j.ranks[to], key: j.draws.Uint64(), handle: nil, window: j.Window}
	c.messages, c.groups = drawMessages(j.draws, n, most, j.Pauses, j.Group)
	for _, m := range c.messages {
		c.most = max(c.most, m.room)
	}
	receiver := j.ranks[to]
	listen, handle, result := receiver.net.Listen(receiver.context, 0)
	if err := receiver.failed("listen", result); err != nil {
		j.world.T.Fatal(err)
	}
	c.handle = &handle
	receiver.flows = append(receiver.flows, &inflow{connection: c, r: receiver, listen: listen})
	sender := j.ranks[from]
	j.quiet.Add(1)
	sender.flows = append(sender.flows, &outflow{connection: c, r: sender, requests: make([]ncclnet.Handle, c.window), begun: j.flows})
}

// flows notes that a connection carries messages.
func (j *Job) flows() {
	if j.quiet.Add(-1) == 0 && j.Begun != nil {
		j.Begun()
	}
}

// Ring makes a connection from each rank to the next one, and to the one before: n messages each, of up to most bytes.
func (j *Job) Ring(n, most int) {
	for i := range j.ranks {
		j.Connect(i, (i+1)%len(j.ranks), n, most)
		if len(j.ranks) > 2 {
			j.Connect(i, (i+len(j.ranks)-1)%len(j.ranks), n, most)
		}
	}
}

// All makes a connection from each rank to every other one: n messages each, of up to most bytes.
func (j *Job) All(n, most int) {
	for i := range j.ranks {
		for k := range j.ranks {
			if i != k {
				j.Connect(i, k, n, most)
			}
		}
	}
}

// errLate is the failure of a job that does not end within its time.
var errLate = errors.New("the job is not over in time")

// Ranks returns the ranks of the job, one for each machine of NewJob, in that order.
func (j *Job) Ranks() []*Rank { return j.ranks }

// Run runs all ranks to their end. It ends the test when a rank fails, or has not ended within that much virtual time.
func (j *Job) Run(within time.Duration) {
	j.world.T.Helper()
	j.Play(within)
	j.must("run")
}

// Play runs all ranks to their end, which for a rank may be a failure: see [Rank.Broken]. It ends the test when a rank has not
// ended within that much virtual time.
func (j *Job) Play(within time.Duration) {
	j.world.T.Helper()
	for _, r := range j.ranks {
		j.over.Go(r.run)
	}
	done := make(chan struct{})
	go func() { j.over.Wait(); close(done) }()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		for _, r := range j.ranks {
			j.world.T.Errorf("%v after %v: %s", errLate, within, r.where())
		}
		j.world.T.Log(j.Logs())
		j.abandon(done)
	}
}

// lingering is how long a process that relays may take after Finalize until the circuits through it have ended.
const lingering = time.Minute

// abandon ends a job that hangs, and the test. It finalizes all processes, because the bubble ends only when each of its
// goroutines has ended.
func (j *Job) abandon(done <-chan struct{}) {
	for _, r := range j.ranks {
		r.killed.Store(true)
	}
	<-done
	for _, r := range j.ranks {
		j.over.Go(func() { _ = r.Finalize() })
	}
	j.over.Wait()
	j.world.Clock.Sleep(10 * time.Minute)
	j.world.T.FailNow()
}

// End closes all connections and finalizes all processes, as a rule not all at once: a rank that has more to do ends later. The
// test fails when a process that was not killed still has sockets or verbs objects open a minute later, by when the circuits
// through it have ended.
func (j *Job) End() {
	j.world.T.Helper()
	together := j.draws.Chance(0.3)
	for _, r := range j.ranks {
		j.over.Go(func() {
			if !together {
				r.wait(time.Duration(r.source.LogUniform(0, 200_000)) * time.Microsecond)
			}
			r.err = r.end()
		})
	}
	j.over.Wait()
	for _, line := range j.blunders() {
		j.world.T.Errorf("a process says what it never must: %s", line)
	}
	if n := j.world.Fabric.Counts()["refused: receiver not ready"]; n > 0 {
		j.world.T.Errorf("%d messages came to an adapter that had no receive for them", n)
	}
	for _, r := range j.ranks {
		if r.err != nil {
			j.world.T.Errorf("end: rank %d: %v", r.number, r.err)
		}
	}
	for end := j.world.Bus.Now() + lingering; j.world.Bus.Now() < end && slices.ContainsFunc(j.ranks, func(r *Rank) bool { return r.leaves() != nil }); {
		j.world.Clock.Sleep(100 * time.Millisecond)
	}
	j.world.Clock.Sleep(100 * time.Millisecond) // for goroutines that do not see at once that there is nothing to do
	for _, r := range j.ranks {
		if left := r.leaves(); left != nil {
			j.world.T.Errorf("%s has left open at %v: %v\n%s\n%s", r.name, j.world.Bus.Now(), slices.Sorted(maps.Keys(left)), strings.Join(r.sockets.Streams(), "\n"), r.Log())
		}
	}
}

// leaves returns the sockets and verbs objects that the process of a rank has open; nil for a killed process.
func (r *Rank) leaves() map[string]int {
	if all := r.Open(); !r.killed.Load() && len(all) > 0 {
		return all
	}
	return nil
}

// where describes how many messages of each flow of a rank are posted and done.
func (r *Rank) where() string {
	var all []string
	for _, f := range r.flows {
		switch f := f.(type) {
		case *inflow:
			all = append(all, fmt.Sprintf("%v: %d of %d messages, %d posted", f, f.done, len(f.messages), f.posted))
		case *outflow:
			all = append(all, fmt.Sprintf("%v: %d of %d messages, %d posted", f, f.done, len(f.messages), f.posted))
		}
	}
	return fmt.Sprintf("rank %d on %s: %s", r.number, r.name, strings.Join(all, "; "))
}
