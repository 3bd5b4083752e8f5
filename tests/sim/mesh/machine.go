package mesh

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/world"
)

// A World is all machines of a simulation.
type World struct {
	*world.World
	Machines []*Machine
	cables   map[int]*Cable
	last     time.Duration // when the last fault begins or ends, of those whose time is known so far

	mu       sync.Mutex
	notes    []line   // what was done to the world
	failures []string // of the test
}

// NewWorld makes a world without machines.
func NewWorld(t *testing.T, b *bus.Bus) *World {
	return &World{World: world.New(t, b), cables: map[int]*Cable{}}
}

// A line is something that was noted or logged at a time.
type line struct {
	at   time.Duration
	text string
}

// note notes what is done to the world.
func (w *World) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, line{w.Bus.Now(), text})
}

// Errorf fails the test, and keeps what it says.
func (w *World) Errorf(format string, args ...any) {
	w.T.Helper()
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.failures = append(w.failures, text)
	w.mu.Unlock()
	w.T.Error(text)
}

// machine returns the machine of a name, or nil.
func (w *World) machine(name string) *Machine {
	for _, m := range w.Machines {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// A Machine is a machine, and the processes on it that have loaded the plugin.
type Machine struct {
	*world.Machine
	world     *World
	processes []*Process
}

// AddMachine adds a machine that has no interface yet but the loopback one.
func (w *World) AddMachine(name string) *Machine {
	m := &Machine{Machine: w.World.AddMachine(name), world: w}
	m.LoadPeerMemory() // there is a GPU
	w.Machines = append(w.Machines, m)
	return m
}

// PowerOff takes the power from a machine: nobody hears a word of its processes any more.
func (m *Machine) PowerOff() {
	m.Host.PowerOff()
	for _, p := range m.processes {
		p.Kill()
	}
	for _, a := range m.Adapters {
		a.Off(true)
	}
}

// A Cable is a cable, and the machines that it joins.
type Cable struct {
	*world.Cable
	Machines [2]*Machine
}

// Cable joins two machines by a cable of its own subnet. number tells the cables apart.
func (w *World) Cable(number int, s world.Speed, rdma bool, a, b *Machine) *Cable {
	c := &Cable{w.World.Cable(number, s, rdma, a.Machine, b.Machine), [2]*Machine{a, b}}
	w.cables[number] = c
	return c
}
