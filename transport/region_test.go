package transport

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"ncclmesh/ibv"
	"ncclmesh/transport/topology"
)

// refusal tests a request, which must not be done, until it has an error.
func refusal(t *testing.T, what string, q *Request) (err error) {
	t.Helper()
	await(t, what, func() bool {
		var ok bool
		if ok, err = q.Test(); ok {
			t.Fatalf("%s is done", what)
		}
		return err != nil
	})
	return err
}

// Memory of a receive that nothing has come for may be deregistered: what came
// before still arrives, and the connection fails when data comes for it, of which
// none lands.
func TestDeregReceive(t *testing.T) {
	tests := []struct {
		name    string
		connect func(t *testing.T) (*SendConn, *RecvConn)
	}{
		{"queue pairs", func(t *testing.T) (*SendConn, *RecvConn) { return connect(t, newTransport(t), newTransport(t)) }},
		{"sockets", func(t *testing.T) (*SendConn, *RecvConn) { return tcpPair(t, 1) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			s, r := tt.connect(t)
			const size = 1 << 20
			sm, sb := memory(t, size)
			keep, kept := memory(t, size)
			gone, lost := memory(t, size)
			sg, kg, gg := register(t, s, sm), register(t, r, keep), register(t, r, gone)
			fill(sb, 3)
			q1, q2 := irecv(t, r, Buffer{keep.Addr(), size, 1, kg}), irecv(t, r, Buffer{gone.Addr(), size, 1, gg})
			if err := r.DeregMR(gg); err != nil {
				t.Fatal(err)
			}
			left := []*Request{q1, isend(t, s, sm, 0, size, 1, sg)}
			await(t, "the message before", func() bool {
				if ok, err := q2.Test(); ok || err != nil {
					t.Fatalf("the receive without memory: %v, %v; want it outstanding", ok, err)
				}
				left = slices.DeleteFunc(left, func(q *Request) bool {
					ok, err := q.Test()
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
			sq := isend(t, s, sm, 0, size, 1, sg)
			if err := refusal(t, "the receive", q2); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "deregistered") {
				t.Errorf("the receiver sees %v, want ErrUsage that says why", err)
			}
			var err error
			sent := false // a socket may have taken it all
			await(t, "the sender's error", func() bool {
				if !sent {
					sent, err = sq.Test()
				} else {
					_, err = s.Isend(sm.Addr(), size, 1, sg)
				}
				return err != nil
			})
			if !errors.Is(err, ErrPeer) || errors.Is(err, ErrUsage) {
				t.Errorf("the sender sees %v, want ErrPeer", err)
			}
			if !bytes.Equal(lost, make([]byte, size)) {
				t.Error("memory was written after DeregMR")
			}
			closeBoth(t, s, r)
		})
	}
}

// Where another connection has registered the same memory the key stays good, so
// that the connection has to be stopped.
func TestDeregShared(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s1, r1 := connect(t, a, b)
	s2, r2 := connect(t, a, b)
	sm, _ := memory(t, 4096)
	m, mb := memory(t, 4096)
	sg, g1, g2 := register(t, s1, sm), register(t, r1, m), register(t, r2, m)
	rq := irecv(t, r1, Buffer{m.Addr(), 4096, 1, g1})
	if err := r1.DeregMR(g1); err != nil {
		t.Fatal(err)
	}
	if ok, err := rq.Test(); ok || !errors.Is(err, ErrUsage) {
		t.Errorf("the receive after DeregMR: %v, %v, want ErrUsage", ok, err)
	}
	await(t, "the sender's error", func() bool {
		_, err := s1.Isend(sm.Addr(), 4096, 1, sg)
		if err != nil && !errors.Is(err, ErrPeer) {
			t.Fatalf("the sender sees %v, want ErrPeer", err)
		}
		return err != nil
	})
	if !bytes.Equal(mb, make([]byte, len(mb))) {
		t.Error("memory was written after DeregMR")
	}
	closeBoth(t, s1, r1)
	sg2 := register(t, s2, sm)
	both(t, "a message of the other connection", irecv(t, r2, Buffer{m.Addr(), 4096, 1, g2}), isend(t, s2, sm, 0, 4096, 1, sg2))
	closeBoth(t, s2, r2)
}

// A device is in the middle of writing a message when its buffer is deregistered:
// nothing lands once DeregMR has returned.
func TestDeregInMidCopy(t *testing.T) {
	leaks(t)
	one := func(o *Options) { o.HCA, _ = topology.ParseHCA("rdma0") }
	a, b := newTransport(t, one), newTransport(t, one)
	const size = 64 << 20
	sm, sb := memory(t, size)
	rm, rb := memory(t, size)
	for i := range sb {
		sb[i] = 1
	}
	for range 50 {
		clear(rb)
		s, r := connect(t, a, b)
		sg, rg := register(t, s, sm), register(t, r, rm)
		irecv(t, r, Buffer{rm.Addr(), size, 1, rg})
		var sender sync.WaitGroup
		sender.Go(func() {
			var q *Request
			var ok bool
			var err error
			for err == nil && !ok {
				if q == nil {
					q, err = s.Isend(sm.Addr(), size, 1, sg)
				} else {
					ok, err = q.Test()
				}
			}
		})
		await(t, "the first byte", func() bool { return firstByte(rb) != 0 })
		if err := r.DeregMR(rg); err != nil {
			t.Fatal(err)
		}
		half := rb[size-1] == 0
		for i := range rb {
			rb[i] = 2
		}
		sender.Wait()
		if i := bytes.IndexByte(rb, 1); i >= 0 {
			t.Fatalf("byte %d was written after DeregMR", i)
		}
		_, _ = s.Close(), r.Close()
		if half {
			return
		}
	}
	t.Error("no message was ever caught half way")
}

//go:noinline
func firstByte(b []byte) byte { return b[0] }

// A queue pair that can neither be stopped nor destroyed may still use the memory:
// DeregMR says so, and leaves it registered until it can be.
func TestDeregUnstoppable(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, func(t *testing.T) {
			leaks(t)
			brief := func(o *Options) { o.TimeScale = 0.25 } // drains that cannot end
			a, b := newTransport(t, brief), newTransport(t, brief)
			s, r := connect(t, a, b)
			m, _ := memory(t, 4096)
			sg, rg := register(t, s, m), register(t, r, m)
			register(t, r, m) // so that the receiver has to be stopped, too
			irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
			t.Cleanup(func() { fault(t, "clear") })
			dereg := func() error { return r.DeregMR(rg) }
			if side == "sender" {
				fault(t, "slow", "time=60s")
				isend(t, s, m, 128, 64, 1, sg)
				dereg = func() error { return s.DeregMR(sg) }
			}
			fault(t, "verb", "name=modify_qp", "errno=EIO")
			fault(t, "verb", "name=destroy_qp", "errno=EBUSY")
			regions := ibv.Live()["memory regions"]
			for range 2 {
				if err := dereg(); err == nil || !strings.Contains(err.Error(), "neither be stopped nor destroyed") {
					t.Errorf("DeregMR: %v, want an error that says that it may still be used", err)
				}
			}
			if n := ibv.Live()["memory regions"]; n != regions {
				t.Errorf("%d memory regions after DeregMR failed, want %d as before", n, regions)
			}
			fault(t, "clear")
			if err := dereg(); err != nil {
				t.Errorf("DeregMR once the queue pairs can be destroyed: %v", err)
			}
			closeBoth(t, s, r)
		})
	}
}
