package rma_test

import (
	"bytes"
	"testing"
	"time"

	"ncclmesh/ncclnet/rma"
	"ncclmesh/transport/lane"
)

// context makes a context of a rank's group.
func (r *rank) context(n int) *rma.Context {
	r.m.t.Helper()
	c, err := r.group.NewContext(n)
	if err != nil {
		r.m.t.Fatal(err)
	}
	return c
}

// More operations than a peer takes at a time, and than the contexts have announced, are queued and all done, in their order.
func TestManyOutstanding(t *testing.T) {
	for _, rdma := range []bool{true, false} {
		onMesh(t, "pair", rdma, func(m *mesh) {
			m.open()
			a, b := m.ranks[0], m.ranks[1]
			c := a.context(2)
			const n = 3000
			word, at := b.word(5)
			var all []rma.Request
			for i := range n {
				_, from := a.slot(2)
				from.Offset += uint64(i % 8000 * 8)
				_, to := b.slot(0)
				q, err := c.PutSignal(i%2, from, 8, rma.Bytes{Window: a.data, Offset: to.Offset}, 1, add(rma.Bytes{Window: a.words, Offset: at.Offset}, uint64(i+1)))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, q)
			}
			for i, q := range all {
				a.await("an operation", q)
				if _, err := a.group.Test(q); err == nil {
					t.Fatalf("request %d is tested twice without an error", i)
				}
			}
			m.await("all signals", func() bool { return word.Load() == n*(n+1)/2 })
		})
	}
}

// Posting and testing allocate nothing: to this rank, where no other goroutine takes part, while time stands still.
func TestPostingAllocatesNothing(t *testing.T) {
	onMesh(t, "one machine", true, func(m *mesh) {
		m.open()
		r := m.ranks[0]
		c := r.context(1)
		_, from := r.slot(0)
		_, at := r.slot(1)
		word, there := r.word(0)
		signal := add(there, 1)
		must := func(q rma.Request, err error) {
			if q == 0 || err != nil {
				t.Fatal(q, err)
			}
			if done, err := r.group.Test(q); !done || err != nil {
				t.Fatalf("done %v, error %v", done, err)
			}
		}
		const runs = 100
		if n := testing.AllocsPerRun(runs, func() {
			must(c.PutSignal(0, from, 64, at, 0, signal))
			must(c.Get(0, from, 64, at, 0))
		}); n != 0 {
			t.Errorf("a put with a signal and a get allocate %v times", n)
		}
		if n := word.Load(); n != runs+1 { // AllocsPerRun calls once more than it is told
			t.Errorf("%d signals of %d have come", n, runs+1)
		}
	})
}

// An operation on a window that the other rank registers later waits for it. Operations behind it wait too, and their order stays.
func TestWindowIsRegisteredLater(t *testing.T) {
	onMesh(t, "pair", true, func(m *mesh) {
		m.open()
		a, b := m.ranks[0], m.ranks[1]
		late, err := a.group.Register(lane.HostMemory, a.mem.Addr(), slot)
		if err != nil {
			t.Fatal(err)
		}
		c := a.context(1)
		source, from := a.slot(2)
		fill(source, 0, 1, 1)
		word, at := b.word(0)
		put, err := c.Put(0, from, 100, rma.Bytes{Window: late, Offset: 8}, 1)
		if err != nil {
			t.Fatal(err)
		}
		signal, err := c.PutSignal(0, rma.Bytes{}, 0, rma.Bytes{}, 1, add(rma.Bytes{Window: a.words, Offset: at.Offset}, 3))
		if err != nil {
			t.Fatal(err)
		}
		m.Clock.Sleep(time.Second)
		for _, q := range []rma.Request{put, signal} {
			if done, err := a.group.Test(q); done || err != nil || word.Load() != 0 {
				t.Fatalf("before the other rank has the window: done %v, error %v, signal %d", done, err, word.Load())
			}
		}
		if _, err := b.group.Register(lane.HostMemory, b.mem.Addr(), slot); err != nil {
			t.Fatal(err)
		}
		m.await("the signal", func() bool { return word.Load() == 3 })
		if got, _ := b.slot(0); !bytes.Equal(got[8:108], source[:100]) {
			t.Error("the signal came before the bytes")
		}
		a.await("the put", put)
		a.await("the signal's request", signal)
	})
}

// A registration that fails on one rank, which then tries another way as NCCL does, leaves the windows of the ranks in step.
func TestRegistrationFailsOnce(t *testing.T) {
	onMesh(t, "pair", true, func(m *mesh) {
		m.open()
		a, b := m.ranks[0], m.ranks[1]
		if _, err := b.group.RegisterDMABuf(lane.GPUMemory, b.mem.Addr(), slot, 0, -1); err == nil {
			t.Fatal("a descriptor that is not open was registered")
		}
		var windows []*rma.Window
		for _, r := range m.ranks {
			w, err := r.group.Register(lane.HostMemory, r.mem.Addr()+slot, slot)
			if err != nil {
				t.Fatal(err)
			}
			windows = append(windows, w)
		}
		source, from := a.slot(2)
		fill(source, 3, 2, 1)
		q, err := a.context(1).Put(0, from, slot, rma.Bytes{Window: windows[0]}, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.await("the put", q)
		if got, _ := b.slot(1); !bytes.Equal(got, source) {
			t.Error("the bytes are not where the rank registered its window")
		}
	})
}

// A cable that fails delays what is under way and changes nothing else: each signal counts once, and comes after its bytes.
func TestCableFails(t *testing.T) {
	for _, rdma := range []bool{true, false} {
		onMesh(t, "pair", rdma, func(m *mesh) {
			m.open()
			a, b := m.ranks[0], m.ranks[1]
			c := a.context(1)
			source, from := a.slot(2)
			got, _ := b.slot(0)
			word, at := b.word(0)
			for i := range 300 {
				fill(source, 0, 1, i)
				q, err := c.PutSignal(0, from, slot, rma.Bytes{Window: a.data}, 1, add(rma.Bytes{Window: a.words, Offset: at.Offset}, 1))
				if err != nil {
					t.Fatal(err)
				}
				if i == 50 {
					m.Clock.Sleep(3 * time.Microsecond) // while the put is on its way
					m.cables[0].Cut(true)
				}
				m.await("the signal", func() bool { return word.Load() > uint64(i) })
				if word.Load() != uint64(i+1) || !bytes.Equal(source, got) {
					t.Fatalf("put %d: the signal is %d, and the bytes are there: %v", i, word.Load(), bytes.Equal(source, got))
				}
				a.await("the put", q)
			}
			if a.group.Err() != nil || b.group.Err() != nil {
				t.Error(a.group.Err(), b.group.Err())
			}
		})
	}
}
