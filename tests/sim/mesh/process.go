package mesh

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"ncclmesh/ibv"
	"ncclmesh/ncclnet"
	"ncclmesh/random"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/stats"
)

// A Process is one that has loaded the plugin.
type Process struct {
	*Machine
	name    string
	net     *ncclnet.Net
	sockets *internet.Process
	verbs   *adapter.Process // nil on a machine without RDMA
	context ncclnet.Handle
	gate    *bus.Gate // shut while the process is stopped
	stops   int       // that are not over

	mu    sync.Mutex
	lines []line
	page  *stats.Page
	ranks []*Rank

	sessions map[string]session // by identity, as the log says; guarded by mu
}

// Start starts a process with settings, as of its environment, beside those of the simulation. It has not called init.
func (m *Machine) Start(settings map[string]string) *Process {
	m.started++
	p := &Process{Machine: m, name: fmt.Sprintf("%s.%d", m.Name(), m.started), sessions: map[string]session{}}
	p.gate = bus.NewGate(m.world.Bus.Source("stops of " + p.name))
	p.sockets = m.Process(p.name)
	p.sockets.Through(p.gate)
	var verbs ibv.Driver
	if len(m.adapters) > 0 {
		p.verbs = m.world.Fabric.Process(m.Name(), p.name)
		p.verbs.Through(p.gate)
		verbs = p.verbs
	}
	env := map[string]string{"NCCL_MESH_DEBUG": "debug"} // which also says what becomes of sessions
	maps.Copy(env, settings)
	host := ncclnet.Host{
		Getenv: func(name string) string { return env[name] },
		Environ: func() (all []string) {
			for name, value := range env {
				all = append(all, name+"="+value)
			}
			return all
		},
		Machine: transport.Machine{
			Network:     p.sockets,
			Verbs:       verbs,
			Random:      p.random(),
			Clock:       clock.New(&timers{m.world.Bus.Source("timers of " + p.name), p.gate}),
			Source:      &source{m, m.world.Bus.Source("netlink of " + p.name), p.gate},
			Identity:    &transport.Identity{Hostname: m.Name(), Boot: "boot of " + m.Name(), PID: 1000 + m.started, Command: "rank"},
			Descriptors: 1 << 20,
			KeepGarbage: true, Page: p.open,
		},
	}
	p.net = ncclnet.New(ncclnet.NewProcess(host))
	p.sockets.OnNews(p.wake)
	m.processes = append(m.processes, p)
	return p
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
			s = p.world.draws.Stream(p.name + ": " + what)
			streams[what] = s
		}
		for i := range b {
			b[i] = byte(s.Uint64())
		}
	}
}

// Open is what the process has open of sockets and of verbs objects.
func (p *Process) Open() map[string]int {
	all := p.sockets.Open()
	if p.verbs != nil {
		maps.Copy(all, p.verbs.Objects())
	}
	return all
}

// Init opens the plugin for a communicator, and may wait.
func (p *Process) Init() error {
	var r ncclnet.Result
	p.context, r = p.net.Init(p.write, ncclnet.Caller{Interface: 12, Version: 23004}, -1)
	return p.failed("init", r)
}

// Finalize closes what the process has open, and may wait.
func (p *Process) Finalize() error { return p.failed("finalize", p.net.Finalize(p.context)) }

// write takes a line of the log.
func (p *Process) write(level, _ int, _ string, _ int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hear(text)
	p.lines = append(p.lines, line{p.world.Bus.Now(), fmt.Sprintf("%s %s %s", p.name, levels[min(level, len(levels)-1)], text)})
}

// levels are the names of NCCL's levels of a log line.
var levels = []string{"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"}

// log returns what the plugin has logged so far.
func (p *Process) log() []line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// PowerOff takes the power from a machine: nobody hears a word of its processes any more.
func (m *Machine) PowerOff() {
	m.Host.PowerOff()
	for _, p := range m.processes {
		p.Kill()
	}
	for _, a := range m.adapters {
		a.Off(true)
	}
}

// Kill ends the process as the kernel does: its sockets close, its verbs objects are gone, its threads call nothing more.
func (p *Process) Kill() {
	for _, r := range p.ranks {
		r.died = p.world.Bus.Now()
		r.killed.Store(true)
	}
	p.sockets.Kill()
	p.gate.Open()
	if p.verbs != nil {
		p.verbs.Kill()
	}
}

// failed makes an error of what a call returned.
func (p *Process) failed(call string, r ncclnet.Result) error {
	if r == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := "nothing was logged"
	if n := len(p.lines); n > 0 {
		last = p.lines[n-1].text
	}
	return fmt.Errorf("%s: %s returned %v: %s", p.name, call, r, last)
}

// wake ends the pauses of the ranks' threads a little later, because there is something new at a socket. It runs in an event
// of the bus.
func (p *Process) wake() {
	for _, r := range p.ranks {
		r.hurry()
	}
}

// pauses are how long a thread that finds nothing to do waits for news of its process.
type pause struct {
	source *bus.Source
	gate   *bus.Gate
	mu     sync.Mutex
	woken  chan struct{} // nil while the thread runs
	event  *bus.Event
	soon   bool
}
