package rma_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/ncclnet/rma"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/world"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
)

// A mesh is machines with a rank each, and the cables between them.
type mesh struct {
	*world.World
	t      *testing.T
	cables []*world.Cable
	ranks  []*rank
	log    transporttest.Log
}

// A rank is a process with its side of a group.
type rank struct {
	m         *mesh
	number    int
	process   *world.Process
	killed    bool
	clock     clock.Clock
	transport *transport.Transport
	listener  *transport.Listener
	group     *rma.Group
	mem       *ibv.Memory
	data      *rma.Window // a slot for each rank that writes into it, and then a slot for each that is read from
	words     *rma.Window // of signals
}

// shapes are the meshes of the tests: which machines have a cable.
var shapes = map[string][][2]int{
	"one machine": {},
	"pair":        {{0, 1}, {0, 1}},
	"triangle":    {{0, 1}, {1, 2}, {2, 0}},
	"line":        {{0, 1}, {1, 2}}, // 0 and 2 reach each other through 1
}

// onMesh runs a test in virtual time on a mesh of a shape, with RDMA or without.
func onMesh(t *testing.T, shape string, rdma bool, f func(m *mesh)) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(t.Name()))
	bus.Run(t, seed.Sum64(), func(t *testing.T, b *bus.Bus) {
		m := &mesh{World: world.New(t, b), t: t}
		n := 1
		for _, c := range shapes[shape] {
			n = max(n, c[0]+1, c[1]+1)
		}
		var machines []*world.Machine
		for i := range n {
			machines = append(machines, m.AddMachine(string(rune('a'+i))))
		}
		m.Management()
		for i, c := range shapes[shape] {
			speed := world.Speed{Rate: 12_500_000_000, Latency: 2 * time.Microsecond, Jitter: time.Microsecond}
			m.cables = append(m.cables, m.Cable(i, speed, rdma, machines[c[0]], machines[c[1]]))
		}
		for i, machine := range machines {
			m.ranks = append(m.ranks, m.start(i, machine))
		}
		defer func() {
			for _, r := range m.ranks {
				r.end()
			}
			if t.Failed() {
				t.Log(&m.log)
			}
		}()
		f(m)
	})
}

func (m *mesh) start(i int, machine *world.Machine) *rank {
	r := &rank{m: m, number: i, process: machine.Start()}
	o := transport.Options{
		Timeout: -1, RetryCount: -1, TrafficClass: -1, ServiceLevel: -1, Key: "a key", Machine: r.process.Runs(),
		Log: slog.New(slog.NewTextHandler(&m.log, nil)).With("rank", i),
	}
	o.Machine.Page = stats.Private
	r.clock = o.Machine.Clock
	var err error
	if r.transport, err = transport.New(o); err != nil {
		m.t.Fatal(err)
	}
	if r.listener, err = r.transport.Listen(); err != nil {
		m.t.Fatal(err)
	}
	return r
}

// end closes what the rank has open, and fails the test if something of it is left.
func (r *rank) end() {
	var errs []error
	if r.group != nil {
		errs = append(errs, r.group.Close())
	}
	errs = append(errs, r.transport.Close())
	if r.mem != nil {
		errs = append(errs, r.mem.Free())
	}
	if r.killed { // all that it does fails
		return
	}
	r.check(errors.Join(errs...))
	r.m.await("the end of what rank "+fmt.Sprint(r.number)+" has open", func() bool { return len(r.process.Open()) == 0 })
}

func (r *rank) check(err error) {
	if err != nil {
		r.m.t.Errorf("rank %d: %v", r.number, err)
	}
}

// await lets time pass until f returns true.
func (m *mesh) await(what string, f func() bool) {
	for begun := time.Now(); !f(); m.Clock.Sleep(20 * time.Microsecond) {
		if time.Since(begun) > 10*time.Minute {
			m.t.Fatalf("waited too long for %s", what)
		}
	}
}

// each calls f for all ranks at once.
func (m *mesh) each(f func(r *rank) error) {
	errs := make(chan error, len(m.ranks))
	for _, r := range m.ranks {
		go func() {
			err := f(r)
			if err != nil {
				err = fmt.Errorf("rank %d: %w", r.number, err)
			}
			errs <- err
		}()
	}
	var all []error
	for range m.ranks {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) handles() (all []handshake.Handle) {
	for _, r := range m.ranks {
		raw := r.listener.Handle()
		h, err := handshake.DecodeHandle(&raw)
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// connect connects a rank with the others.
func (r *rank) connect(handles []handshake.Handle) (err error) {
	r.group, err = rma.Connect(rma.Config{
		Transport: r.transport, Listener: r.listener, Handles: handles, Rank: r.number, Clock: r.clock,
		Log: slog.New(slog.NewTextHandler(&r.m.log, nil)).With("rank", r.number), Polls: 10,
	})
	if err == nil {
		err = r.listener.Close() // NCCL closes it at once
	}
	return err
}

// slot is the size of what a rank writes to a rank at a time.
const slot = 64 << 10

// register registers the rank's windows, which are as the others'.
func (r *rank) register() (err error) {
	n := len(r.m.ranks)
	if r.mem, err = ibv.Alloc((2*n + 1) * slot); err != nil {
		return err
	}
	if r.data, err = r.group.Register(lane.HostMemory, r.mem.Addr(), uintptr(2*n*slot)); err != nil {
		return err
	}
	r.words, err = r.group.Register(lane.HostMemory, r.mem.Addr()+uintptr(2*n*slot), slot)
	return err
}

// open connects all ranks and registers their windows.
func (m *mesh) open() {
	handles := m.handles()
	m.each(func(r *rank) error {
		if err := r.connect(handles); err != nil {
			return err
		}
		return r.register()
	})
}

// slot returns the memory of a slot, and where it is in the window.
func (r *rank) slot(i int) ([]byte, rma.Bytes) {
	return r.mem.Bytes()[i*slot:][:slot], rma.Bytes{Window: r.data, Offset: uint64(i * slot)}
}

// word returns word i, and where it is in the window.
func (r *rank) word(i int) (*atomic.Uint64, rma.Bytes) {
	return wordAt(r.mem.Addr() + uintptr(2*len(r.m.ranks)*slot+8*i)), rma.Bytes{Window: r.words, Offset: uint64(8 * i)}
}

// await lets time pass until a request is done.
func (r *rank) await(what string, q rma.Request) {
	r.m.await(what, func() bool {
		done, err := r.group.Test(q)
		if err != nil {
			r.m.t.Fatalf("rank %d: %s: %v", r.number, what, err)
		}
		return done
	})
}
