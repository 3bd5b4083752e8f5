package mesh

import (
	"cmp"
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
	// Begun is called once, when the first message of each connection is posted. It may not let time pass.
	Begun func()
	quiet atomic.Int32 // connections without a message so far

	world *World
	draws *draw.Stream
	pairs map[string]int // connections between two ranks so far
	ranks []*Rank
	over  sync.WaitGroup
}

// NewJob starts a process with the settings on each of the machines, and initialises the plugin in it.
func (w *World) NewJob(settings map[string]string, on ...*Machine) *Job {
	j := &Job{pairs: map[string]int{}, world: w, draws: w.Bus.Source("job").Stream}
	for _, m := range on {
		p := m.Start(settings)
		r := &Rank{Process: p, pause: pause{source: w.Bus.Source("rank on " + m.Name()), gate: p.Gate}}
		p.ranks = append(p.ranks, r)
		j.ranks = append(j.ranks, r)
	}
	var inits sync.WaitGroup
	for _, r := range j.ranks {
		inits.Go(func() {
			r.source.Sleep(r.source.Between(0, 50*time.Millisecond))
			r.Process.Gate.Wait()
			r.err = r.Init()
		})
	}
	inits.Wait()
	j.must("init")
	return j
}

// must gives the job up when a rank has failed. what names the phase of the job in the message. No rank may be running.
func (j *Job) must(what string) {
	j.world.T.Helper()
	for _, r := range j.ranks {
		for _, b := range r.broken {
			j.world.Errorf("%s: %v", what, b)
		}
		if r.err != nil && r.broken == nil {
			j.world.Errorf("%s: %v", what, r.err)
		}
	}
	if j.world.T.Failed() {
		j.abandon()
	}
}

// Logs returns the log lines of all processes, each with its virtual time, in the order of their times.
func (j *Job) Logs() string {
	var all []line
	for _, r := range j.ranks {
		all = append(all, r.log()...)
	}
	return inOrder(all)
}

// inOrder returns lines as text, in the order of their times.
func inOrder(all []line) string {
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, l := range all {
		fmt.Fprintf(&text, "%14v %s\n", l.at, l.text)
	}
	return text.String()
}

// Connect makes a connection. What it draws depends on its two machines and on how many connections lead from the one to the
// other already, but on no others.
func (j *Job) Connect(d Connection) {
	name := d.From + " to " + d.To
	j.pairs[name]++
	if n := j.pairs[name]; n > 1 {
		name += fmt.Sprintf(", number %d", n)
	}
	messages := j.world.Bus.Source("connection " + name).Stream
	sender, receiver := j.rank(d.From), j.rank(d.To)
	c := &connection{name: name, from: sender, to: receiver, key: messages.Uint64(), window: d.Window, memory: d.Memory}
	c.messages, c.groups = drawMessages(messages, j.world.Bus.Source("groups of connection "+name).Stream, &d)
	for _, m := range c.messages {
		c.most = max(c.most, m.room)
	}
	listen, handle, result := receiver.net.Listen(receiver.context, 0)
	if err := receiver.failed("listen", result); err != nil {
		j.world.Errorf("%v", err)
		j.world.T.FailNow()
	}
	c.handle = &handle
	memory := func(end string) ranges {
		return ranges{most: d.Ranges, draws: j.world.Bus.Source("memory of the " + end + " of connection " + name).Stream}
	}
	receiver.flows = append(receiver.flows, &inflow{connection: c, r: receiver, listen: listen, ranges: memory("receiver")})
	j.quiet.Add(1)
	sender.flows = append(sender.flows, &outflow{connection: c, r: sender, requests: make([]ncclnet.Handle, c.window), ranges: memory("sender"), begun: j.flows})
}

// rank returns the rank on a machine, or nil.
func (j *Job) rank(machine string) *Rank {
	for _, r := range j.ranks {
		if r.Machine.Name() == machine {
			return r
		}
	}
	return nil
}

// flows notes that a connection carries messages.
func (j *Job) flows() {
	if j.quiet.Add(-1) == 0 && j.Begun != nil {
		j.Begun()
	}
}

// errLate is the failure of a job that does not end within its time.
var errLate = errors.New("the job is not over in time")

// Play runs all ranks to their end, which for a rank may be a failure. It ends the test when a rank has not
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
		late := make([]string, len(j.ranks))
		for i, r := range j.ranks {
			late[i] = r.where()
			r.killed.Store(true)
		}
		<-done
		for i, r := range j.ranks {
			for _, b := range r.broken { // which may be why the others wait
				j.world.Errorf("run: %v", b)
			}
			j.world.Errorf("%v after %v: %s", errLate, within, late[i])
		}
		j.abandon()
	}
}

// lingering is how long a process that relays may take after Finalize until the circuits through it have ended.
const lingering = time.Minute

// abandon ends the test. It finalizes all processes first, because the bubble ends only when each of its goroutines has ended. No
// rank may be running.
func (j *Job) abandon() {
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
				r.source.Sleep(time.Duration(r.source.LogUniform(0, 200_000)) * time.Microsecond) // news of its sockets does not end that
			}
			r.err = r.end()
		})
	}
	j.over.Wait()
	for _, line := range j.logged(never...) {
		j.world.Errorf("a process says what it never must: %s", line)
	}
	if n := j.world.Fabric.Counts()["refused: receiver not ready"]; n > 0 {
		j.world.Errorf("%d messages came to an adapter that had no receive for them", n)
	}
	for _, r := range j.ranks {
		if r.err != nil {
			j.world.Errorf("end: %v", r.err)
		}
	}
	for end := j.world.Bus.Now() + lingering; j.world.Bus.Now() < end && slices.ContainsFunc(j.ranks, func(r *Rank) bool { return r.leaves() != nil }); {
		j.world.Clock.Sleep(100 * time.Millisecond)
	}
	j.world.Clock.Sleep(100 * time.Millisecond) // for goroutines that do not see at once that there is nothing to do
	for _, r := range j.ranks {
		if left := r.leaves(); left != nil {
			j.world.Errorf("%s has left open at %v: %v\n%s", r.Name, j.world.Bus.Now(), slices.Sorted(maps.Keys(left)), strings.Join(r.Sockets.Streams(), "\n"))
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
		case *exchange:
			all = append(all, f.where())
		}
	}
	return fmt.Sprintf("%s: %s", r.Name, strings.Join(all, "; "))
}

// Ranks returns the ranks of the job, one for each machine of NewJob, in that order.
func (j *Job) Ranks() []*Rank { return j.ranks }
