package datapath

import (
	"runtime"
	"slices"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// The data path allocates nothing, nor does it for who watches once it goes on.
func TestNoAllocations(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		sm, _ := transporttest.Memory(t, 1<<20)
		rm, _ := transporttest.Memory(t, 1<<20)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		runs := 200
		if slices.Contains(transporttest.Kinds(&s.Conn), lane.Circuit) {
			runs = 20 // with one processor every frame waits for the relay's turn
		}
		for i, size := range []int{8, 64 << 10, 1 << 18, 1 << 20, 8, 1 << 20} {
			if i >= 4 {
				w := conn.NewWatch(func(*conn.Trace, bool) {})
				s.Watch(w)
				r.Watch(w)
			}
			bufs := []conn.Buffer{{Addr: rm.Addr(), Size: size, Tag: 1, Region: rg}}
			n := transporttest.Allocations(runs, func() {
				var rq, sq *conn.Request
				var err error
				for rq == nil && err == nil {
					rq, err = r.Irecv(bufs)
				}
				for sq == nil && err == nil {
					if sq, err = s.Isend(sm.Addr(), size, 1, sg); sq == nil && err == nil { // it may have to ask for the grant
						_, err = rq.Test(nil)
					}
				}
				for sent, got := false, false; err == nil && (!sent || !got); runtime.Gosched() { // a relay of this process, and one processor
					if !sent {
						sent, err = sq.Test(nil)
					}
					if !got && err == nil {
						got, err = rq.Test(nil)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("a message of %d bytes allocates %v times", size, n)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// Messages that go eagerly allocate nothing, at either end.
func TestEagerAllocatesNothing(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		sm, _ := transporttest.Memory(t, 8)
		rm, _ := transporttest.Memory(t, 8)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		bufs := []conn.Buffer{transporttest.Buffer(rm, 0, 8, 7, rg)}
		waits := s.Count.Waits.Value()
		n := transporttest.Allocations(1000, func() {
			var sq, rq *conn.Request
			var err error
			for sq == nil && err == nil {
				sq, err = s.Isend(sm.Addr(), 8, 7, sg)
			}
			for done := false; !done && err == nil; {
				done, err = sq.Test(nil)
			}
			for rq == nil && err == nil {
				rq, err = r.Irecv(bufs)
			}
			for done := false; !done && err == nil; {
				done, err = rq.Test(nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%g allocations a message", n)
		}
		if waited := s.Count.Waits.Value() - waits; waited != 0 {
			t.Errorf("%d messages waited for grants", waited)
		}
		transporttest.CloseBoth(t, s, r)
	})
}
