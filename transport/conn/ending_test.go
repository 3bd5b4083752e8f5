package conn_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// number returns the number of the first queue pair of b.
//
// Preconditions: b is locked.
func number(b *conn.Conn) uint32 { return b.Lanes()[0].Half().QPN }

// last returns a connection's last two lanes.
func last(b *conn.Conn) []*lane.Lane {
	b.Lock()
	defer b.Unlock()
	return slices.Clone(b.Lanes()[len(b.Lanes())-2:]) // cloned, because joining lanes replace those that fail
}

// While a connection is locked, as it is while a lane is destroyed, an event of one of its queue pairs is
// acknowledged, so that the queue pair can be destroyed; and the session delivers messages to other
// connections.
func TestEventsNeedNoMutex(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		s.Lock()
		transporttest.WorldOf(t).Fabric.Break(number(&s.Conn))
		transporttest.Within(t, "the event", func() {
			for s.Lanes()[0].Failure() == nil {
				time.Sleep(time.Millisecond)
			}
		})
		transporttest.Within(t, "the queue pair's end", func() {
			if err := s.Lanes()[0].Carrier.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := r.Close(); err != nil { // sends a Bye to the connection that is locked
			t.Error(err)
		}
		s2, r2 := transporttest.Connect(t, a, b)
		transporttest.CloseBoth(t, s2, r2)
		s.Unlock()
		transporttest.Await(t, "the peer's Bye", func() bool {
			_, err := s.Isend(0, 0, 1, nil)
			if err != nil && !errors.Is(err, fault.ErrPeer) {
				t.Fatalf("isend after the peer's end: %v, want ErrPeer", err)
			}
			return err != nil
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Completions are late, and the device declares the queue pair broken while it drains, so that it must be
// destroyed: DeregMR returns all the same.
func TestEventInDrain(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t, func(o *transport.Options) { o.TimeScale = 0.5 }), transporttest.New(t, func(o *transport.Options) { o.TimeScale = 0.5 })
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		transporttest.CompleteLate(t, time.Minute)
		t.Cleanup(func() { transporttest.Heal(t) })
		transporttest.Isend(t, s, m, 128, 64, 1, sg)
		s.Lock()
		num, first := number(&s.Conn), s.Lanes()[0]
		s.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.DeregMR(sg); err != nil {
				t.Error(err)
			}
		})
		transporttest.Await(t, "the drain", func() bool {
			s.Lock()
			defer s.Unlock()
			return first.State() == lane.Down
		})
		transporttest.WorldOf(t).Fabric.Break(num)
		transporttest.Within(t, "DeregMR", wg.Wait)
		transporttest.Heal(t)
		transporttest.CloseBoth(t, s, r)
	})
}

// Events arrive while connections with many queue pairs end.
func TestEventsAroundClose(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		many := func(o *transport.Options) { o.QPsPerPath = 16 }
		a, b := transporttest.New(t, many), transporttest.New(t, many)
		w, rnd := transporttest.WorldOf(t), rand.New(rand.NewPCG(1, 1))
		for range 40 {
			s, r := transporttest.Connect(t, a, b)
			var events, ends sync.WaitGroup
			lanes := slices.Concat(last(&s.Conn), last(&r.Conn))
			for _, l := range lanes {
				after := time.Duration(rnd.IntN(1000)) * time.Microsecond
				events.Go(func() {
					w.Sleep(after)
					w.Fabric.Break(l.Half().QPN) // the queue pair may be destroyed
				})
			}
			transporttest.Await(t, "the first event", func() bool {
				return slices.ContainsFunc(lanes, func(l *lane.Lane) bool { return l.Failure() != nil })
			})
			transporttest.Within(t, "the ends", func() {
				ends.Go(func() { _ = s.Close() })
				ends.Go(func() { _ = r.Close() })
				ends.Wait()
			})
			events.Wait()
		}
		transporttest.Within(t, "what lingers", func() {
			for ibv.Live()["queue pairs"] > 0 {
				time.Sleep(time.Millisecond)
			}
		})
	})
}

// The last message and the sender's Bye arrive after a poll and before Test decides on the receive: the next
// poll finds the message.
func TestByeBehindPoll(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		transporttest.Done(t, "the send", transporttest.Isend(t, s, m, 128, 64, 1, sg))
		c := &r.Conn
		look := c.InsteadOfPoll(func() { c.Deliver(&handshake.Bye{Conn: c.ID}) })
		if ok, err := rq.Test(nil); ok || err != nil {
			t.Errorf("the test that the Bye came into: done %v, %v", ok, err)
		}
		look()
		if ok, err := rq.Test(nil); !ok || err != nil {
			t.Errorf("the test after it: done %v, %v", ok, err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// All queue pairs stop in the middle of a transfer: the message that was delivered before is done once, and
// the other is delivered over the lanes that replace them.
func TestBrokenLanes(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 1<<16)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		q1 := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		q2 := transporttest.Irecv(t, r, transporttest.Buffer(m, 64, 64, 1, rg))
		s1 := transporttest.Isend(t, s, m, 1024, 64, 1, sg)
		transporttest.Done(t, "the first message", q1)
		s.Lock()
		for _, l := range s.Lanes() {
			if err := l.Carrier.Stop(); err != nil {
				t.Error(err)
			}
		}
		s.Unlock()
		s2 := transporttest.Isend(t, s, m, 2048, 64, 1, sg)
		transporttest.Both(t, "both sends and the second receive", s1, s2, q2)
		transporttest.CloseBoth(t, s, r)
	})
}

// That the peer has closed is an error of the next operation, and not before.
func TestPeerCloses(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		transporttest.Done(t, "send", transporttest.Isend(t, s, m, 128, 64, 1, sg))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		transporttest.WorldOf(t).Sleep(20 * time.Millisecond)
		transporttest.Done(t, "a receive that was complete", rq)
		transporttest.Await(t, "the error", func() bool {
			_, err := r.Irecv([]conn.Buffer{transporttest.Buffer(m, 0, 64, 1, rg)})
			if err != nil && !errors.Is(err, fault.ErrPeer) {
				t.Fatalf("%v, want ErrPeer", err)
			}
			return err != nil
		})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The receiver's Bye may overtake the acknowledgement of the last send: that send is done all the same, and
// the next one is refused.
func TestByeOvertakes(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		transporttest.Late(t, 200*time.Millisecond)
		t.Cleanup(func() { transporttest.Heal(t) })
		sq := transporttest.Isend(t, s, m, 128, 64, 1, sg)
		s.Deliver(&handshake.Bye{Conn: s.ID})
		if ok, err := sq.Test(nil); ok || err != nil {
			t.Fatalf("right after the Bye: done %v, %v", ok, err)
		}
		transporttest.Done(t, "the send", sq)
		transporttest.Done(t, "the receive", rq)
		if _, err := s.Isend(m.Addr(), 64, 1, sg); !errors.Is(err, fault.ErrPeer) {
			t.Errorf("a send after the Bye: %v, want ErrPeer", err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}
