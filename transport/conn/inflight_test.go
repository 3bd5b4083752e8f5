package conn_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A receiver deregisters its memory and closes with receives outstanding, while the sender still posts. Every
// send that was granted is accepted, whether or not the grant has reached the sender, and is done or fails.
// Nothing is written to the memory, which is unmapped.
func TestCloseInFlight(t *testing.T) {
	const receives, tag = 32, 1
	for _, tt := range []struct {
		name   string
		size   int
		before int  // sends before the close
		heard  bool // the sender knows of the close when it posts the others
	}{
		{"none sent", 2 << 10, 0, false},
		{"short messages", 64, 5, false},
		{"long messages", 1 << 18, 5, false},
		{"none sent, heard", 2 << 10, 0, true},
		{"short messages, heard", 64, 5, true},
		{"long messages, heard", 1 << 18, 5, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
				sm, _ := transporttest.Memory(t, tt.size)
				rm, rb := transporttest.Memory(t, receives*tt.size)
				sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
				for i := range receives {
					transporttest.Irecv(t, r, transporttest.Buffer(rm, i*tt.size, tt.size, tag, rg))
				}
				var sends []*conn.Request
				for range tt.before {
					sends = append(sends, transporttest.Isend(t, s, sm, 0, tt.size, tag, sg))
				}
				if err := errors.Join(r.DeregMR(rg), unix.Mprotect(rb, unix.PROT_NONE), r.Close()); err != nil {
					t.Fatal(err)
				}
				if tt.heard {
					transporttest.Await(t, "the end of the connection", func() bool { return s.Ended() != nil })
				}
				for len(sends) < receives { // Isend fails the test if a send is refused
					sends = append(sends, transporttest.Isend(t, s, sm, 0, tt.size, tag, sg))
				}
				failed := 0
				for i, q := range sends {
					transporttest.Await(t, "the end of a send", func() bool {
						done, err := q.Test(nil)
						if err != nil && !errors.Is(err, fault.ErrPeer) {
							t.Fatalf("send %d: %v, want ErrPeer", i, err)
						}
						if err != nil {
							failed++
						}
						return done || err != nil
					})
				}
				eager := conn.IsEager(s) && tt.size <= lane.EagerSize // then a send is done once the kernel has it
				if !eager && failed < receives-tt.before {
					t.Errorf("%d sends failed, and %d were posted after the close", failed, receives-tt.before)
				}
				if err := errors.Join(s.DeregMR(sg), s.Close(), unix.Mprotect(rb, unix.PROT_READ|unix.PROT_WRITE)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// On a connection that has failed a send is refused only once no request is free, so that a program that
// tests no request gets the error too. On a connection that the receiver closed cleanly, or that failed
// otherwise, a send is refused at once.
func TestIsendAfterTheEnd(t *testing.T) {
	tests := []struct {
		name     string
		end      func(s *conn.Sender, r *conn.Receiver) error
		accepted bool
		want     error
	}{
		{"refused by the peer", func(_ *conn.Sender, r *conn.Receiver) error {
			r.Fail(fault.ErrUsage)
			return nil
		}, true, fault.ErrPeer},
		{"lost on the way", func(s *conn.Sender, _ *conn.Receiver) error {
			s.Fail(fault.ErrLane)
			return nil
		}, true, fault.ErrPeer},
		{"gone", func(s *conn.Sender, _ *conn.Receiver) error {
			s.PeerGone(fault.ErrPeerGone)
			return nil
		}, true, fault.ErrPeer},
		{"closed cleanly", func(_ *conn.Sender, r *conn.Receiver) error { return r.Close() }, false, fault.ErrPeer},
		{"against the protocol", func(s *conn.Sender, _ *conn.Receiver) error {
			s.Fail(fault.ErrProtocol)
			return nil
		}, false, fault.ErrProtocol},
		{"broken here", func(s *conn.Sender, _ *conn.Receiver) error {
			s.Fail(fault.ErrInternal)
			return nil
		}, false, fault.ErrInternal},
		{"closed here", func(s *conn.Sender, _ *conn.Receiver) error { return s.Close() }, false, fault.ErrUsage},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
			m, _ := transporttest.Memory(t, 64)
			g := transporttest.Register(t, s, m)
			if err := tt.end(s, r); err != nil {
				t.Fatal(err)
			}
			var sends []*conn.Request
			var err error
			transporttest.Await(t, "the error", func() bool {
				var q *conn.Request
				if q, err = s.Isend(m.Addr(), 64, 1, g); q != nil {
					sends = append(sends, q)
				}
				return err != nil
			})
			if accepted := len(sends) > 0; accepted != tt.accepted || !errors.Is(err, tt.want) {
				t.Errorf("%d sends were accepted, then %v; want %v, then %v", len(sends), err, tt.accepted, tt.want)
			}
			for _, q := range sends {
				transporttest.Await(t, "a send's error", func() bool {
					done, err := q.Test(nil)
					if done {
						t.Fatal("a send is done that never went")
					}
					return err != nil
				})
			}
			if err := errors.Join(s.Close(), r.Close()); err != nil {
				t.Error(err)
			}
		}))
	}
}

// A send that is accepted after the end of the connection allocates nothing.
func TestIsendAfterTheEndAllocatesNothing(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		m, _ := transporttest.Memory(t, 64)
		g := transporttest.Register(t, s, m)
		s.Fail(fault.ErrLane)
		if n := transporttest.Allocations(20, func() {
			if q, err := s.Isend(m.Addr(), 64, 1, g); q == nil || err != nil {
				t.Fatalf("%v, %v", q, err)
			}
		}); n != 0 {
			t.Errorf("%g allocations a send", n)
		}
		if err := errors.Join(s.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	})
}
