package conn_test

import (
	"errors"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
)

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
