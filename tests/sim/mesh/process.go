package mesh

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"ncclmesh/cuda"
	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/world"
	"ncclmesh/transport/stats"
)

// A Process is one that has loaded the plugin.
type Process struct {
	*Machine
	*world.Process
	net     *ncclnet.Net
	context ncclnet.Handle

	mu    sync.Mutex
	lines []line
	page  *stats.Page
	ranks []*Rank

	sessions map[string]session // by identity, as the log says; guarded by mu
}

// Start starts a process with settings, as of its environment, beside those of the simulation. It has not called init.
func (m *Machine) Start(settings map[string]string) *Process {
	p := &Process{Machine: m, Process: m.Machine.Start(), sessions: map[string]session{}}
	env := map[string]string{"NCCL_MESH_DEBUG": "debug"} // which also says what becomes of sessions
	maps.Copy(env, settings)
	runs := p.Runs()
	runs.Page = p.open
	host := ncclnet.Host{
		Getenv: func(name string) string { return env[name] },
		Environ: func() (all []string) {
			for name, value := range env {
				all = append(all, name+"="+value)
			}
			return all
		},
		Machine: runs,
		GPU: ncclnet.GPU{
			Attributes: func() (cuda.Attributes, error) { return cuda.Attributes{GPUDirectRDMA: true, DMABuf: true}, nil },
			Buffer:     m.world.Fabric.GPUNumber,
			Flush: func() error {
				m.world.Fabric.Settle(m.Name())
				return nil
			},
		},
	}
	p.net = ncclnet.New(ncclnet.NewProcess(host))
	p.Sockets.OnNews(p.wake)
	m.processes = append(m.processes, p)
	return p
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
	p.lines = append(p.lines, line{p.world.Bus.Now(), fmt.Sprintf("%s %s %s", p.Name, levels[min(level, len(levels)-1)], text)})
}

// levels are the names of NCCL's levels of a log line.
var levels = []string{"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"}

// log returns what the plugin has logged so far.
func (p *Process) log() []line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// Kill ends the process as the kernel does: its sockets close, its verbs objects are gone, its threads call nothing more.
func (p *Process) Kill() {
	for _, r := range p.ranks {
		r.died = p.world.Bus.Now()
		r.killed.Store(true)
	}
	p.Process.Kill()
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
	return fmt.Errorf("%s: %s returned %v: %s", p.Name, call, r, last)
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
