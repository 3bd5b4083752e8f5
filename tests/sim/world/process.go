package world

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/random"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport"
	"ncclmesh/transport/clock"
)

// A Process is one that runs on a machine.
type Process struct {
	Machine *Machine
	Name    string
	Sockets *internet.Process
	Verbs   *adapter.Process // nil on a machine without RDMA
	Gate    *bus.Gate        // shut while the process is stopped

	stops  int // that are not over
	number int // of all that were started on the machine
}

// Start starts a process.
func (m *Machine) Start() *Process {
	m.started++
	p := &Process{Machine: m, Name: fmt.Sprintf("%s.%d", m.Name(), m.started), number: m.started}
	p.Gate = bus.NewGate(m.world.Bus.Source("stops of " + p.Name))
	p.Sockets = m.Process(p.Name)
	p.Sockets.Through(p.Gate)
	if len(m.Adapters) > 0 {
		p.Verbs = m.world.Fabric.Process(m.Name(), p.Name)
		p.Verbs.Through(p.Gate)
	}
	return p
}

// Runs is what a transport of the process runs on.
func (p *Process) Runs() transport.Machine {
	var verbs ibv.Driver
	if p.Verbs != nil {
		verbs = p.Verbs
	}
	m := p.Machine
	return transport.Machine{
		Network:     p.Sockets,
		Verbs:       verbs,
		Random:      p.random(),
		Clock:       clock.New(&timers{m.world.Bus.Source("timers of " + p.Name), p.Gate}),
		Source:      &source{m, m.world.Bus.Source("netlink of " + p.Name), p.Gate},
		Identity:    &transport.Identity{Hostname: m.Name(), Boot: "boot of " + m.Name(), PID: 1000 + p.number, Command: "rank"},
		Descriptors: 1 << 20,
		KeepGarbage: true,
	}
}

// random is a source of the numbers that the process draws: a stream for each thing.
func (p *Process) random() random.Source {
	var mu sync.Mutex
	streams := map[string]*draw.Stream{}
	return func(b []byte, what string) {
		mu.Lock()
		defer mu.Unlock()
		s := streams[what]
		if s == nil {
			s = p.Machine.world.draws.Stream(p.Name + ": " + what)
			streams[what] = s
		}
		for i := range b {
			b[i] = byte(s.Uint64())
		}
	}
}

// Open is what the process has open of sockets and of verbs objects.
func (p *Process) Open() map[string]int {
	all := p.Sockets.Open()
	if p.Verbs != nil {
		maps.Copy(all, p.Verbs.Objects())
	}
	return all
}

// Kill ends the process as the kernel does: its sockets close, its verbs objects are gone, its threads call nothing more.
func (p *Process) Kill() {
	p.Sockets.Kill()
	p.Gate.Open()
	if p.Verbs != nil {
		p.Verbs.Kill()
	}
}

// Halt stops the process, as SIGSTOP does, or lets it go on: while it is stopped none of its threads and goroutines does anything,
// and none of its timers fires. The machine goes on: sockets receive until they are full, and adapters carry out what was
// posted and place what arrives. Of stops that overlap the last to end counts. It is to be called within an event, or before
// the process does anything.
func (p *Process) Halt(on bool) {
	if on {
		p.stops++
		p.Gate.Shut()
		return
	}
	if p.stops--; p.stops == 0 {
		p.Gate.Open()
	}
}

// timers makes the timers of a process.
type timers struct {
	source *bus.Source
	gate   *bus.Gate
}

var _ clock.Events = (*timers)(nil)

// AfterFunc calls f by an event, or, where the process is stopped then, when it goes on.
func (t *timers) AfterFunc(d time.Duration, f func()) func() bool {
	return t.source.After(d, "timer", func() { t.gate.Pass(f) }).Stop
}
