package conn_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// After DeregMR nothing touches the memory, whatever requests are outstanding: the test unmaps the memory,
// and both sides go on testing.
func TestDeregOutstanding(t *testing.T) {
	forever := func(o *transport.Options) { o.Timeout = 0 } // of the queue pairs, for lost packets
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, func(t *testing.T) {
			transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
				b := transporttest.Block(t, s, r, transporttest.Most(s))
				for range 3 {
					if ok, err := b.Recv.Test(nil); ok || err != nil {
						t.Fatalf("receive: %v, %v", ok, err)
					}
				}
				dereg, mem := func() error { return s.DeregMR(b.FromRegion) }, b.From
				if side == "receiver" {
					transporttest.Register(t, r, b.To) // so that queue pairs have to be stopped, too
					dereg, mem = func() error { return r.DeregMR(b.ToRegion) }, b.To
				}
				if err := dereg(); err != nil {
					t.Fatal(err)
				}
				if err := unix.Mprotect(mem.Bytes(), unix.PROT_NONE); err != nil {
					t.Fatal(err)
				}
				wantErr := func(what string, q *conn.Request, usage bool) {
					transporttest.Await(t, what, func() bool {
						ok, err := q.Test(nil)
						if ok {
							t.Fatalf("%s is done", what)
						}
						if err != nil && errors.Is(err, fault.ErrUsage) != usage {
							t.Fatalf("%s: %v", what, err)
						}
						return err != nil
					})
				}
				wantErr("the send's end", b.Send, side == "sender")
				wantErr("the receive's end", b.Recv, side == "receiver")
				transporttest.CloseBoth(t, s, r)
			}, forever)
		})
	}
}

// A region may be deregistered while requests that use another are outstanding.
func TestDeregOther(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		sm, _ := transporttest.Memory(t, 4096)
		rm, _ := transporttest.Memory(t, 8192)
		sg := transporttest.Register(t, s, sm)
		g1, err := r.RegMR(lane.HostMemory, rm.Addr(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		g2, err := r.RegMR(lane.HostMemory, rm.Addr()+4096, 4096)
		if err != nil {
			t.Fatal(err)
		}
		rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: 4096, Tag: 1, Region: g1})
		if err := r.DeregMR(g2); err != nil {
			t.Fatal(err)
		}
		transporttest.Both(t, "the message", transporttest.Isend(t, s, sm, 0, 4096, 1, sg), rq)
		if err := r.DeregMR(g2); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("second DeregMR: %v, want ErrUsage", err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}
