package transporttest

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/tests/sim/world"
	"ncclmesh/transport"
	"ncclmesh/transport/stats"
)

// A World is what a simulated test runs on: two machines, a and b, and two cables between them, of 100 and of 50 Gb/s. Each machine has
// the RDMA ports rdma0, at 192.168.1.1 or .2, and rdma1, at 192.168.2.1 or .2, whose messages have 4096 bytes at most.
type World struct {
	*world.World
	Machines [2]*world.Machine
	Cables   [2]*world.Cable

	source     *bus.Source
	processes  []*world.Process
	transports map[*transport.Transport]*world.Process
	pages      map[*world.Process]*stats.Page
	killed     map[*transport.Transport]bool
	last       []func() // what is done when all has ended
}

// worlds are those of the tests that run.
var worlds sync.Map // of *testing.T

// worldOf returns the world of a test, nil where it is not simulated.
func worldOf(t testing.TB) *World {
	w, ok := worlds.Load(t)
	if !ok {
		return nil
	}
	return w.(*World)
}

// WorldOf returns the world of a simulated test.
func WorldOf(t testing.TB) *World {
	t.Helper()
	w := worldOf(t)
	if w == nil {
		t.Fatal("the test is not simulated")
	}
	return w
}

// Run runs a test in virtual time on a world of its own. It fails the test when that leaves a socket or a verbs object open; testing/synctest
// does when it leaves a goroutine behind. All draws follow from the name of the test.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	bus.Run(t, name.Sum64(), func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b)
		worlds.Store(t, w)
		t.Cleanup(func() {
			w.left(t)
			for _, f := range w.last {
				f()
			}
			worlds.Delete(t)
		})
		f(t)
	})
}

// Simulated makes of a test, or a part of one, what [Run] runs.
func Simulated(f func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		Run(t, f)
	}
}

// run runs a part of a test, simulated unless the package's tests run on a fabric.
func run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if !onFabric {
		Run(t, f)
		return
	}
	Leaks(t)
	f(t)
}

// buffer is the size of a simulated stream's buffers, in bytes.
const buffer = 64 << 10

func newWorld(t *testing.T, b *bus.Bus) *World {
	w := &World{World: world.New(t, b), source: b.Source("test"), transports: map[*transport.Transport]*world.Process{}, pages: map[*world.Process]*stats.Page{}, killed: map[*transport.Transport]bool{}}
	w.Net.Even(buffer) // then it is for the test to know what of a message is in the kernel
	for k := range w.Machines {
		w.Machines[k] = w.AddMachine(string(rune('a' + k)))
	}
	narrow := adapter.Usual
	narrow.MsgSize = 4096
	for n, c := range []struct {
		mbps   int
		limits adapter.Limits
	}{{100_000, adapter.Usual}, {50_000, narrow}} {
		var ends [2]*internet.Interface
		var adapters [2]*world.Adapter
		for k, m := range w.Machines {
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(1 + n), byte(1 + k)}), 24)
			ends[k] = m.AddPort([]string{"p0", "p1"}[n], c.mbps, prefix)
			adapters[k] = m.AddAdapter([]string{"rdma0", "rdma1"}[n], ends[k], c.mbps, c.limits)
		}
		w.Cables[n] = w.Connect(n, world.Speed{Rate: int64(c.mbps) * 125_000, Latency: 2 * time.Microsecond, Jitter: time.Microsecond}, ends, adapters)
	}
	return w
}

// Start starts a process on the machine after that of the one before, and returns what a transport of it runs on.
func (w *World) Start() (*world.Process, transport.Machine) {
	m := w.machine()
	return w.processes[len(w.processes)-1], m
}

// machine is a process on the machine after that of the one before.
func (w *World) machine() transport.Machine {
	p := w.Machines[len(w.processes)%len(w.Machines)].Start()
	w.processes = append(w.processes, p)
	runs := p.Runs()
	runs.Page = func(who stats.Process) *stats.Page {
		w.pages[p] = stats.Private(who)
		return w.pages[p]
	}
	return runs
}

// Page returns what a transport counts on.
func (w *World) Page(tr *transport.Transport) *stats.Page { return w.pages[w.Process(tr)] }

// Process returns the process that a transport is of.
func (w *World) Process(tr *transport.Transport) *world.Process { return w.transports[tr] }

// Kill ends the process of a transport as the kernel does. Errors when the transport closes do not count after that.
func Kill(t testing.TB, tr *transport.Transport) {
	t.Helper()
	w := WorldOf(t)
	w.killed[tr] = true
	w.Process(tr).Kill()
}

// Sleep waits for d of virtual time.
func (w *World) Sleep(d time.Duration) { w.source.Sleep(d) }

// Settle lets simulated adapters carry out what was posted: before that they may not have read the memory that it names.
func Settle(t testing.TB) {
	if w := worldOf(t); w != nil {
		w.Sleep(20 * time.Microsecond)
	}
}

// Draws returns random numbers, which follow from the name of the test.
func Draws(t testing.TB) *rand.Rand {
	t.Helper()
	return WorldOf(t).source.Rand
}

// left fails the test when a process has left something open.
func (w *World) left(t *testing.T) {
	const lingering = time.Minute
	for _, p := range w.processes {
		for end := w.Bus.Now() + lingering; len(p.Open()) > 0; w.Sleep(time.Millisecond) {
			if w.Bus.Now() > end {
				t.Errorf("process %s has left open: %v", p.Name, p.Open())
				break
			}
		}
	}
	w.Sleep(time.Second) // for goroutines that do not see at once that there is nothing to do
}
