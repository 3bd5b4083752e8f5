package tcp_test

import (
	"fmt"
	"runtime"
	"testing"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// BenchmarkMessage measures the processor time of one message over a TCP lane, with both ends on one thread.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{8, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s, r, sm, rm, sg, rg := benchPair(b, size)
			bufs := []conn.Buffer{{Addr: rm.Addr(), Size: size, Region: rg}}
			b.SetBytes(int64(size))
			for b.Loop() {
				rq, err := r.Irecv(bufs)
				if rq == nil || err != nil {
					b.Fatal(err)
				}
				var sq *conn.Request
				for sq == nil {
					if sq, err = s.Isend(sm.Addr(), size, 0, sg); err != nil {
						b.Fatal(err)
					}
				}
				for sent, got := false, false; !sent || !got; {
					if !sent {
						if sent, err = sq.Test(nil); err != nil {
							b.Fatal(err)
						}
					}
					if !got {
						if got, err = rq.Test(nil); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}

func benchPair(b *testing.B, size int) (s *conn.Sender, r *conn.Receiver, sm, rm *ibv.Memory, sg, rg *lane.Region) {
	b.Helper()
	var ts [2]*transport.Transport
	for i := range ts {
		t, err := transport.New(transport.Options{Transport: transport.TransportTCP, TCPStreams: 1})
		if err != nil {
			b.Fatal(err)
		}
		ts[i] = t
		b.Cleanup(func() {
			if err := t.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	s, r = transporttest.Connect(b, ts[0], ts[1])
	for _, m := range []**ibv.Memory{&sm, &rm} {
		var err error
		if *m, err = ibv.Alloc(max(size, 1)); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = (*m).Free() })
	}
	var err error
	if sg, err = s.RegMR(lane.HostMemory, sm.Addr(), uintptr(sm.Len())); err != nil {
		b.Fatal(err)
	}
	if rg, err = r.RegMR(lane.HostMemory, rm.Addr(), uintptr(rm.Len())); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = s.Close(), r.Close() })
	return s, r, sm, rm, sg, rg
}

// BenchmarkPingPong measures half a round trip of 8 bytes between two threads.
func BenchmarkPingPong(b *testing.B) {
	s1, r2, sm1, rm2, sg1, rg2 := benchPair(b, 8)
	s2, r1, sm2, rm1, sg2, rg1 := benchPair(b, 8)
	post := func(r *conn.Receiver, m *ibv.Memory, g *lane.Region) *conn.Request {
		q, err := r.Irecv([]conn.Buffer{{Addr: m.Addr(), Size: 8, Region: g}})
		if q == nil || err != nil {
			b.Error(q, err)
		}
		return q
	}
	settle := func(q *conn.Request) {
		for {
			ok, err := q.Test(nil)
			if err != nil {
				b.Error(err)
			}
			if ok || err != nil {
				return
			}
		}
	}
	send := func(s *conn.Sender, m *ibv.Memory, g *lane.Region) {
		for {
			q, err := s.Isend(m.Addr(), 8, 0, g)
			if err != nil {
				b.Error(err)
				return
			}
			if q != nil {
				settle(q)
				return
			}
		}
	}
	n := b.N
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread()
		for range n {
			q := post(r2, rm2, rg2)
			settle(q)
			send(s2, sm2, sg2)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ResetTimer()
	for range n {
		q := post(r1, rm1, rg1)
		send(s1, sm1, sg1)
		settle(q)
	}
	<-over
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*n), "ns/half")
}
