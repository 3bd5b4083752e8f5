package conn_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// A refused registration is an error of this node, names what was refused and why, and ends nothing.
func TestRegistrationRefused(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 1<<20)
		transporttest.WorldOf(t).Cables[0].Adapters[0].Device.Refuse("reg_mr", syscall.ENOMEM, 0, 1)
		_, err := s.RegMR(lane.HostMemory, m.Addr(), uintptr(m.Len()))
		if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "memlock") || !strings.Contains(err.Error(), "1048576") {
			t.Errorf("error %v, want ENOMEM with size and limit", err)
		}
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		transporttest.Done(t, "send", transporttest.Isend(t, s, m, 128, 64, 1, sg))
		transporttest.Done(t, "receive", rq)
		transporttest.CloseBoth(t, s, r)
	})
}

// refusal tests a request, which must not be done, until it returns an error.
func refusal(t *testing.T, what string, q *conn.Request) (err error) {
	t.Helper()
	transporttest.Await(t, what, func() bool {
		var ok bool
		if ok, err = q.Test(nil); ok {
			t.Fatalf("%s is done", what)
		}
		return err != nil
	})
	return err
}

// The memory of a receive for which no data has arrived may be deregistered: earlier data still arrives, and
// the connection fails if data comes for the receive. Nothing is written to the memory.
func TestDeregReceive(t *testing.T) {
	tests := []struct {
		name    string
		connect func(t *testing.T) (*conn.Sender, *conn.Receiver)
	}{
		{"queue pairs", func(t *testing.T) (*conn.Sender, *conn.Receiver) {
			return transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		}},
		{"sockets", func(t *testing.T) (*conn.Sender, *conn.Receiver) { return transporttest.PairTCP(t, 1) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			s, r := tt.connect(t)
			const size = 1 << 20
			sm, sb := transporttest.Memory(t, size)
			keep, kept := transporttest.Memory(t, size)
			gone, lost := transporttest.Memory(t, size)
			sg, kg, gg := transporttest.Register(t, s, sm), transporttest.Register(t, r, keep), transporttest.Register(t, r, gone)
			transporttest.Fill(sb, 3)
			q1, q2 := transporttest.Irecv(t, r, transporttest.Buffer(keep, 0, size, 1, kg)), transporttest.Irecv(t, r, transporttest.Buffer(gone, 0, size, 1, gg))
			if err := r.DeregMR(gg); err != nil {
				t.Fatal(err)
			}
			left := []*conn.Request{q1, transporttest.Isend(t, s, sm, 0, size, 1, sg)}
			transporttest.Await(t, "the message before", func() bool {
				if ok, err := q2.Test(nil); ok || err != nil {
					t.Fatalf("the receive without memory: %v, %v; want it outstanding", ok, err)
				}
				left = slices.DeleteFunc(left, func(q *conn.Request) bool {
					ok, err := q.Test(nil)
					if err != nil {
						t.Fatal(err)
					}
					return ok
				})
				return len(left) == 0
			})
			if !bytes.Equal(kept, sb) {
				t.Error("the message before differs")
			}
			sq := transporttest.Isend(t, s, sm, 0, size, 1, sg)
			if err := refusal(t, "the receive", q2); !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), "deregistered") {
				t.Errorf("the receiver sees %v, want ErrUsage that says why", err)
			}
			var err error
			sent := false // the send may be done, because the socket has taken it all
			transporttest.Await(t, "the sender's error", func() bool {
				if !sent {
					sent, err = sq.Test(nil)
				} else {
					_, err = s.Isend(sm.Addr(), size, 1, sg)
				}
				return err != nil
			})
			if !errors.Is(err, fault.ErrPeer) || errors.Is(err, fault.ErrUsage) {
				t.Errorf("the sender sees %v, want ErrPeer", err)
			}
			if !bytes.Equal(lost, make([]byte, size)) {
				t.Error("memory was written after DeregMR")
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// If another connection has registered the same memory the key stays valid, so that DeregMR must stop the
// connection.
func TestDeregShared(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s1, r1 := transporttest.Connect(t, a, b)
		s2, r2 := transporttest.Connect(t, a, b)
		sm, _ := transporttest.Memory(t, 4096)
		m, mb := transporttest.Memory(t, 4096)
		sg, g1, g2 := transporttest.Register(t, s1, sm), transporttest.Register(t, r1, m), transporttest.Register(t, r2, m)
		rq := transporttest.Irecv(t, r1, transporttest.Buffer(m, 0, 4096, 1, g1))
		if err := r1.DeregMR(g1); err != nil {
			t.Fatal(err)
		}
		if ok, err := rq.Test(nil); ok || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("the receive after DeregMR: %v, %v, want ErrUsage", ok, err)
		}
		transporttest.Await(t, "the sender's error", func() bool {
			_, err := s1.Isend(sm.Addr(), 4096, 1, sg)
			if err != nil && !errors.Is(err, fault.ErrPeer) {
				t.Fatalf("the sender sees %v, want ErrPeer", err)
			}
			return err != nil
		})
		if !bytes.Equal(mb, make([]byte, len(mb))) {
			t.Error("memory was written after DeregMR")
		}
		transporttest.CloseBoth(t, s1, r1)
		sg2 := transporttest.Register(t, s2, sm)
		transporttest.Both(t, "a message of the other connection", transporttest.Irecv(t, r2, transporttest.Buffer(m, 0, 4096, 1, g2)), transporttest.Isend(t, s2, sm, 0, 4096, 1, sg2))
		transporttest.CloseBoth(t, s2, r2)
	})
}

// A device is writing a message when its buffer is deregistered: nothing is written once DeregMR has
// returned.
func TestDeregInMidCopy(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const size = 8 << 20
		one := func(o *transport.Options) { o.HCA, _ = topology.ParseHCA("rdma0") }
		s, r := transporttest.Connect(t, transporttest.New(t, one), transporttest.New(t, one))
		sm, sb := transporttest.Memory(t, size)
		rm, rb := transporttest.Memory(t, size)
		for i := range sb {
			sb[i] = 1
		}
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, size, 1, rg))
		q := transporttest.Isend(t, s, sm, 0, size, 1, sg)
		transporttest.Await(t, "the first byte", func() bool { return rb[0] != 0 })
		if err := r.DeregMR(rg); err != nil {
			t.Fatal(err)
		}
		if rb[size-1] != 0 {
			t.Error("the message was not caught half way")
		}
		for i := range rb {
			rb[i] = 2
		}
		if err := refusal(t, "the send", q); !errors.Is(err, fault.ErrPeer) {
			t.Errorf("the sender sees %v, want ErrPeer", err)
		}
		if i := bytes.IndexByte(rb, 1); i >= 0 {
			t.Fatalf("byte %d was written after DeregMR", i)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A queue pair that can neither be stopped nor destroyed may still use the memory: DeregMR returns an error
// and leaves the memory registered until one of both is possible.
func TestDeregUnstoppable(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, transporttest.Simulated(func(t *testing.T) {
			brief := func(o *transport.Options) { o.TimeScale = 0.25 } // drains that cannot end
			a, b := transporttest.New(t, brief), transporttest.New(t, brief)
			s, r := transporttest.Connect(t, a, b)
			m, _ := transporttest.Memory(t, 4096)
			sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
			transporttest.Register(t, r, m) // so that the receiver has to be stopped, too
			transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
			t.Cleanup(func() { transporttest.Heal(t) })
			dereg := func() error { return r.DeregMR(rg) }
			if side == "sender" {
				transporttest.CompleteLate(t, time.Minute)
				transporttest.Isend(t, s, m, 128, 64, 1, sg)
				dereg = func() error { return s.DeregMR(sg) }
			}
			transporttest.Refuse(t, "modify_qp", syscall.EIO)
			transporttest.Refuse(t, "destroy_qp", syscall.EBUSY)
			regions := ibv.Live()["memory regions"]
			for range 2 {
				if err := dereg(); err == nil || !strings.Contains(err.Error(), "neither be stopped nor destroyed") {
					t.Errorf("DeregMR: %v, want an error that says that it may still be used", err)
				}
			}
			if n := ibv.Live()["memory regions"]; n != regions {
				t.Errorf("%d memory regions after DeregMR failed, want %d as before", n, regions)
			}
			transporttest.Heal(t)
			if err := dereg(); err != nil {
				t.Errorf("DeregMR once the queue pairs can be destroyed: %v", err)
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}
