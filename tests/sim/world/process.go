package world

import (
	"fmt"
	"maps"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/tests/sim/process"
	"ncclmesh/transport"
)

// A Process is one that runs on a machine.
type Process struct {
	*process.Self
	Machine *Machine
	Sockets *internet.Process
	Verbs   *adapter.Process // nil on a machine without RDMA

	number int // of all that were started on the machine
}

// Start starts a process.
func (m *Machine) Start() *Process {
	m.started++
	self := process.New(m.world.Bus, m.world.draws, fmt.Sprintf("%s.%d", m.Name(), m.started))
	p := &Process{Self: self, Machine: m, Sockets: m.Process(self.Name), number: m.started}
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
		Random:      p.Random(),
		Clock:       p.Clock(),
		Source:      &source{m, m.world.Bus.Source("netlink of " + p.Name), p.Gate},
		Identity:    &transport.Identity{Hostname: m.Name(), Boot: "boot of " + m.Name(), PID: 1000 + p.number, Command: "rank"},
		Descriptors: 1 << 20,
		KeepGarbage: true,
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
