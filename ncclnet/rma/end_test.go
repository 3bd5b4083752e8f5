package rma_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ncclmesh/ncclnet/rma"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// posted begins operations of a rank to another that are under way.
func (r *rank) posted(c *rma.Context, to, n int) (all []rma.Request) {
	_, from := r.slot(len(r.m.ranks))
	_, at := r.slot(r.number)
	_, word := r.word(r.number)
	for range n {
		q, err := c.PutSignal(0, from, slot, at, to, add(word, 1))
		if err != nil {
			r.m.t.Fatal(err)
		}
		all = append(all, q)
	}
	return all
}

// kill ends a rank's process.
func (r *rank) kill() {
	r.process.Kill()
	r.killed = true
}

// When a rank dies, operations to it fail with a remote error, those to other ranks do not, and everything can be closed in NCCL's order without
// it.
func TestRankDies(t *testing.T) {
	for _, rdma := range []bool{true, false} {
		onMesh(t, "triangle", rdma, func(m *mesh) {
			m.open()
			dead := m.ranks[2]
			contexts, ops := make([]*rma.Context, 2), make([][]rma.Request, 2)
			for i, r := range m.ranks[:2] {
				contexts[i] = r.context(1)
				ops[i] = r.posted(contexts[i], 2, 100)
				if err := r.group.Err(); err != nil {
					t.Error(err)
				}
			}
			dead.kill()
			for i, r := range m.ranks[:2] {
				c := contexts[i]
				var failed error
				for _, q := range ops[i] {
					m.await("the end of an operation", func() bool {
						done, err := r.group.Test(q)
						failed = errors.Join(failed, err)
						return done || err != nil
					})
				}
				if !errors.Is(failed, fault.ErrPeer) {
					t.Errorf("rank %d: the error is %v", r.number, failed)
				}
				if err := r.group.Err(); !errors.Is(err, fault.ErrPeer) {
					t.Errorf("rank %d: the group's error is %v", r.number, err)
				}
				_, from := r.slot(3)
				if q, err := c.Put(0, from, 8, from, 2); q != 0 || !errors.Is(err, fault.ErrPeer) {
					t.Errorf("a put to the dead rank: request %v, error %v", q, err)
				}
				for _, q := range r.posted(c, 1-r.number, 10) {
					r.await("an operation to a living rank", q)
				}
			}
			for i, r := range m.ranks[:2] {
				contexts[i].Destroy()
				begun := time.Now()
				r.check(r.group.Deregister(r.data))
				r.check(r.group.Deregister(r.words))
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("deregistration took %v", took)
				}
			}
		})
	}
}

// A rank that closes its group in peace is no error of the others, until they use it.
func TestRankCloses(t *testing.T) {
	onMesh(t, "pair", true, func(m *mesh) {
		m.open()
		a, b := m.ranks[0], m.ranks[1]
		c := a.context(1)
		for _, q := range a.posted(c, 1, 10) {
			a.await("a put", q)
		}
		b.check(b.group.Close())
		b.group = nil
		m.Clock.Sleep(time.Second)
		if err := a.group.Err(); err != nil {
			t.Errorf("after the other rank has closed: %v", err)
		}
		_, from := a.slot(2)
		if q, err := c.Put(0, from, 8, from, 1); q != 0 || !errors.Is(err, fault.ErrPeer) {
			t.Errorf("a put to it: request %v, error %v", q, err)
		}
		if err := a.group.Err(); !errors.Is(err, fault.ErrPeer) {
			t.Errorf("after that: %v", err)
		}
		r := a
		r.check(r.group.Deregister(r.data))
	})
}

// A context that is destroyed with operations under way leaves nothing behind: its windows can be deregistered, on one rank alone, and others go on.
func TestContextIsDestroyed(t *testing.T) {
	onMesh(t, "pair", true, func(m *mesh) {
		m.open()
		a, b := m.ranks[0], m.ranks[1]
		for range 20 { // as a program that makes device communicators again and again
			c := a.context(1)
			a.posted(c, 1, 200)
			a.posted(c, 0, 10)
			c.Destroy()
		}
		other := a.context(1)
		for _, q := range a.posted(other, 1, 10) {
			a.await("a put in another context", q)
		}
		a.check(a.group.Deregister(a.data))
		if err := a.group.Deregister(a.data); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("deregistered twice: %v", err)
		}
		_, from := a.slot(2)
		if q, err := other.Put(0, from, 8, from, 1); q != 0 || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a put from a window that was deregistered: request %v, error %v", q, err)
		}
		c := b.context(1)
		_, from = b.slot(2)
		q, err := c.Put(0, from, 8, from, 0)
		if err == nil {
			m.await("the end of a put into a window that has ended", func() bool {
				_, err = b.group.Test(q)
				return err != nil
			})
		}
		if !errors.Is(err, fault.ErrUsage) || errors.Is(err, fault.ErrPeer) {
			t.Errorf("a put into a window that has ended: %v", err)
		}
		_, word := b.word(1)
		if q, err = c.PutSignal(0, rma.Bytes{}, 0, rma.Bytes{}, 0, add(word, 1)); err != nil {
			t.Fatal(err)
		}
		b.await("a signal into another window", q)
		if b.group.Err() != nil {
			t.Error(b.group.Err())
		}
	})
}

// Each mistake is one error of the call, and changes nothing.
func TestBadInput(t *testing.T) {
	onMesh(t, "pair", true, func(m *mesh) {
		m.open()
		a := m.ranks[0]
		c := a.context(2)
		_, from := a.slot(0)
		_, word := a.word(0)
		beyond := rma.Bytes{Window: a.data, Offset: 4 * slot}
		set := &rma.Signal{Word: word, Do: 9, Value: 1}
		for _, tt := range []struct {
			name string
			call func() (rma.Request, error)
			want string
		}{
			{"another context", func() (rma.Request, error) { return c.Put(2, from, 8, from, 1) }, "context 2; there are 2"},
			{"no rank", func() (rma.Request, error) { return c.Put(0, from, 8, from, 2) }, "rank 2 of a group of 2"},
			{"from beyond the window", func() (rma.Request, error) { return c.Put(0, beyond, 8, from, 1) }, "8 bytes at offset 262144 of window 1, which has 262144"},
			{"an offset that wraps", func() (rma.Request, error) {
				return c.Put(0, rma.Bytes{Window: a.data, Offset: ^uint64(0)}, 8, from, 1)
			}, "of window 1, which has 262144"},
			{"to beyond the window", func() (rma.Request, error) { return c.Put(0, from, 8, beyond, 1) }, "8 bytes at offset 262144 of window 1"},
			{"bytes of no window", func() (rma.Request, error) { return c.Put(0, rma.Bytes{}, 8, from, 1) }, "needs a window to read from"},
			{"a get of no window", func() (rma.Request, error) { return c.Get(0, from, 8, rma.Bytes{}, 1) }, "needs a window to read from"},
			{"a get to beyond the window", func() (rma.Request, error) { return c.Get(0, from, 8, beyond, 1) }, "8 bytes at offset 262144 of window 1"},
			{"a signal without a window", func() (rma.Request, error) { return c.PutSignal(0, from, 8, from, 1, add(rma.Bytes{}, 1)) }, "needs a window with the word"},
			{"a signal that is not aligned", func() (rma.Request, error) {
				return c.PutSignal(0, from, 8, from, 1, add(rma.Bytes{Window: a.words, Offset: 4}, 1))
			}, "offset 4 of window 2"},
			{"a signal that does nothing known", func() (rma.Request, error) { return c.PutSignal(0, from, 8, from, 1, set) }, "signal operation 9"},
		} {
			m.Clock.Sleep(time.Millisecond) // the windows are known, so that the call itself finds the mistake
			if q, err := tt.call(); q != 0 || !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: request %v, error %v; want a usage error about %q", tt.name, q, err, tt.want)
			}
		}
		for _, q := range []rma.Request{0, 1, 1 << 32, 1<<32 | 1<<16, ^rma.Request(0)} {
			if done, err := a.group.Test(q); done || !errors.Is(err, fault.ErrUsage) {
				t.Errorf("request %#x: done %v, error %v", uint64(q), done, err)
			}
		}
		for _, n := range []int{0, -1, rma.MaxContexts + 1} {
			if _, err := a.group.NewContext(n); !errors.Is(err, fault.ErrUsage) {
				t.Errorf("%d contexts: %v", n, err)
			}
		}
		if _, err := a.group.Register(lane.HostMemory, 0, 8); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a window at NULL: %v", err)
		}
		q, err := c.Put(0, rma.Bytes{}, 0, rma.Bytes{}, 1)
		if q == 0 || err != nil {
			t.Fatalf("a put of nothing: request %v, error %v", q, err)
		}
		a.await("a put of nothing", q)
		if q, err = c.PutSignal(1, from, 0, from, 0, &rma.Signal{Word: word, Do: onesided.SignalInc}); err != nil {
			t.Fatal(err)
		}
		a.await("a signal to itself", q)
		if w, _ := a.word(0); w.Load() != 1 {
			t.Errorf("the word is %d", w.Load())
		}
	})
}

// A rank that never connects is named, and nothing is left open.
func TestRankIsMissing(t *testing.T) {
	onMesh(t, "triangle", true, func(m *mesh) {
		handles := m.handles()
		m.each(func(r *rank) error {
			if r.number == 1 {
				return nil
			}
			begun := time.Now()
			err := r.connect(handles)
			if err == nil || !errors.Is(err, fault.ErrUnreachable) || !strings.Contains(err.Error(), "rank 1 at") || strings.Contains(err.Error(), "rank 2 at") {
				t.Errorf("rank %d: %v", r.number, err)
			}
			if took := time.Since(begun); took > 3*time.Minute {
				t.Errorf("rank %d: it took %v", r.number, took)
			}
			r.group = nil
			return nil
		})
	})
}

// Ranks that are not of one group do not connect.
func TestGroupsDiffer(t *testing.T) {
	onMesh(t, "pair", true, func(m *mesh) {
		handles := m.handles()
		m.each(func(r *rank) error {
			own := handles
			if r.number == 1 {
				own = append(own[:2:2], handles[0])
			}
			err := r.connect(own)
			if !errors.Is(err, fault.ErrPeer) {
				t.Errorf("rank %d: %v", r.number, err)
			}
			r.group = nil
			return nil
		})
		for _, ranks := range []int{-1, 2} {
			r := &rank{m: m, number: ranks, transport: m.ranks[0].transport, listener: m.ranks[0].listener, clock: m.ranks[0].clock}
			if err := r.connect(handles); !errors.Is(err, fault.ErrUsage) {
				t.Errorf("rank %d: %v", ranks, err)
			}
		}
	})
}
