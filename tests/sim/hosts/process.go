package hosts

import (
	"fmt"
	"sync"
	"time"

	"ncclmesh/random"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/clock"
)

// A Process is one on a host: a sock.Network, with timers and random numbers of its own.
type Process struct {
	*internet.Process
	test   *Test
	timers *timers

	mu      sync.Mutex
	streams map[string]*draw.Stream // of random numbers, by what they are for
}

// Process starts a process on the host of a name.
func (w *Test) Process(host string) *Process {
	name := fmt.Sprintf("%s.%d", host, len(w.processes)+1)
	p := &Process{Process: w.Host(host).Process(name), test: w, streams: map[string]*draw.Stream{}}
	p.timers = &timers{w.Bus.Source("timers of " + name), bus.NewGate(w.Bus.Source("stops of " + name))}
	p.Through(p.timers.gate)
	w.processes = append(w.processes, p)
	return p
}

// Clock makes the timers of the process.
func (p *Process) Clock() clock.Clock { return clock.New(p.timers) }

// Random returns the source of the numbers that the process draws: a stream for each thing.
func (p *Process) Random() random.Source { return p.fill }

// fill draws the next numbers of the stream for a thing.
func (p *Process) fill(b []byte, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streams[what]
	if s == nil {
		s = p.test.draws.Stream(p.String() + ": " + what)
		p.streams[what] = s
	}
	for i := range b {
		b[i] = byte(s.Uint64())
	}
}

// Stop stops the process for a time, as SIGSTOP and SIGCONT do: no call of its sockets returns and none of its timers fires
// meanwhile. Its host goes on.
func (p *Process) Stop(d time.Duration) {
	p.timers.gate.Shut()
	p.test.After(d, p.timers.gate.Open)
}

// timers are the timers of a process.
type timers struct {
	source *bus.Source
	gate   *bus.Gate
}

// AfterFunc calls f by an event, or, where the process is stopped then, when it goes on.
func (t *timers) AfterFunc(d time.Duration, f func()) func() bool {
	return t.source.After(d, "timer", func() { t.gate.Pass(f) }).Stop
}
