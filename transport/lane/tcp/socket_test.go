package tcp_test

// Two transports of this process connect over simulated cables.

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
)

// end is either end of a connection.
type end interface {
	sync.Locker
	Lanes() []*lane.Lane
}

// sockets returns the sockets of a connection, by lane.
func sockets(c end) (all []*tcp.Socket) {
	for _, l := range c.Lanes() {
		all = append(all, tcp.SocketOf(l))
	}
	return all
}

// exit closes the sockets of a connection, as the kernel does for a process that ends.
func exit(t *testing.T, c end) {
	t.Helper()
	c.Lock()
	defer c.Unlock()
	for _, k := range sockets(c) {
		if err := k.Replace(sock.None); err != nil {
			t.Error(err)
		}
	}
}

// oneCable makes lanes use one of the two cables, so that all have the same speed.
func oneCable(o *transport.Options) {
	var err error
	if o.LaneIfs, err = topology.ParseInterfaces("=p0"); err != nil {
		panic(err)
	}
}

// settle waits until all parts have arrived and are acknowledged.
func settle(t *testing.T) { transporttest.WorldOf(t).Sleep(20 * time.Microsecond) }

// rest takes lanes out of service.
func rest(c end, lanes ...*lane.Lane) {
	c.Lock()
	defer c.Unlock()
	for _, l := range lanes {
		l.Deactivate()
	}
}

// A send is done when the receiver has its bytes, however many of them the kernels buffer. If the sender's
// process ends then, with unread grants, its kernel discards its buffer, and the receiver still gets every
// message that was done.
func TestDelivered(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		const n, more, each = 12, 4, 8 << 10
		sm, sb := transporttest.Memory(t, n*each)
		rm, rb := transporttest.Memory(t, (n+more)*each)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(sb, 9)
		var sent, got []*conn.Request
		post := func() {
			got = append(got, transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr() + uintptr(len(got)*each), Size: each, Region: rg}))
		}
		for range n {
			post()
		}
		for i := range n {
			sent = append(sent, transporttest.Isend(t, s, sm, i*each, each, 0, sg))
		}
		for range more {
			post() // which the sender does not read
		}
		for i, q := range sent { // the kernels have all of it
			for range 100 {
				if ok, err := q.Test(nil); ok || err != nil {
					t.Fatalf("send %d before the receiver looked: done %v, error %v", i, ok, err)
				}
				settle(t)
			}
		}
		left := append(append([]*conn.Request(nil), sent...), got[:n]...)
		transporttest.Await(t, "all messages", func() bool {
			if ok, err := got[n].Test(nil); ok || err != nil {
				t.Fatalf("a receive of nothing: done %v, error %v", ok, err)
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
		exit(t, s)
		if !bytes.Equal(sb, rb[:n*each]) {
			t.Error("the bytes differ")
		}
		rest(s, s.Lanes()...)
		transporttest.CloseBoth(t, s, r)
	})
}

// A slow receiver is no error; a peer whose kernel acknowledges nothing is one.
func TestSlow(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		b := transporttest.Block(t, s, r, transporttest.Most(s))
		for _, k := range sockets(s) {
			k.Hurry(time.Millisecond)
		}
		w := transporttest.WorldOf(t)
		for start := time.Now(); time.Since(start) < 3*time.Second; w.Sleep(time.Millisecond) {
			if ok, err := b.Send.Test(nil); ok || err != nil {
				t.Fatalf("a send to a slow receiver: done %v, error %v", ok, err)
			}
		}
		transporttest.Both(t, "the message", b.Send, b.Recv)
		transporttest.CloseBoth(t, s, r)
	})
}

// A lane whose address is removed while nothing is in flight fails: the kernel then sends no new data, so there
// is nothing that could be acknowledged.
func TestNoRoute(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.PairTCP(t, 1)
		lanes := slices.Clone(s.Lanes()) // another takes the place of one that fails
		const size = 1 << 20
		sm, _ := transporttest.Memory(t, size)
		rm, _ := transporttest.Memory(t, size)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		port := transporttest.WorldOf(t).Machines[0].Interface("p1")
		addrs := port.Prefixes()
		port.SetPrefixes()
		defer port.SetPrefixes(addrs[0])
		for _, k := range append(sockets(s), sockets(r)...) {
			k.Hurry(time.Millisecond)
		}
		transporttest.Both(t, "the message", transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: size, Region: rg}), transporttest.Isend(t, s, sm, 0, size, 0, sg))
		s.Lock()
		if lanes[1].InService() || !lanes[0].InService() {
			t.Errorf("in service: %v is %v, %v is %v", lanes[0], lanes[0].State(), lanes[1], lanes[1].State())
		}
		s.Unlock()
		transporttest.CloseBoth(t, s, r)
	})
}

// The kernel accepts small messages at once, so that no lane ever has a backlog; they are sent over all lanes
// in turn.
func TestTurns(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.PairTCP(t, 4, oneCable)
		const turns, size = 5, 2048
		sm, _ := transporttest.Memory(t, size)
		rm, _ := transporttest.Memory(t, size)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		for range turns * len(s.Lanes()) {
			transporttest.Both(t, "the message", transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: size, Region: rg}), transporttest.Isend(t, s, sm, 0, size, 0, sg))
		}
		for _, l := range s.Lanes() {
			if want := uint64(turns * size); l.Bytes.Value() != want {
				t.Errorf("%v carried %d bytes, want %d", l, l.Bytes.Value(), want)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// Memory that only a device can access is refused.
func TestGPUMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.PairTCP(t, 1)
		if _, err := s.RegMR(lane.GPUMemory, 0x1000, 4096); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("error %v, want ErrUsage", err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// When the peer's process has ended its sockets report that at once: no lane stays in service.
func TestPeerGone(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		b := transporttest.Block(t, s, r, transporttest.Most(s))
		rest(r, r.Lanes()...)
		lanes := slices.Clone(s.Lanes())
		exit(t, r)
		transporttest.Await(t, "the end of all lanes", func() bool {
			if ok, err := b.Send.Test(nil); ok || err != nil {
				t.Fatalf("done %v, error %v", ok, err)
			}
			s.Lock()
			defer s.Unlock()
			for _, l := range lanes {
				if l.InService() {
					return false
				}
				if !errors.Is(l.Why(), fault.ErrPeer) {
					t.Fatalf("%v: %v, want ErrPeer", l, l.Why())
				}
			}
			return true
		})
		transporttest.CloseBoth(t, s, r)
	})
}

// Messages that a peer sent before it closed its sockets are read, although the sockets accept no grants any
// more.
func TestPeerGoneBehindMessages(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		const messages, size = 6, 24
		sm, sb := transporttest.Memory(t, messages*size)
		rm, rb := transporttest.Memory(t, messages*size)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(sb, 1)
		for i := range messages {
			transporttest.Done(t, "a send", transporttest.Isend(t, s, sm, i*size, size, 0, sg))
		}
		exit(t, s) // grants that come from here on have the kernel reset the connection
		s.Lock()   // it is gone, and sends nothing again
		var all []*conn.Request
		for i := range messages {
			all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, i*size, size, 0, rg)))
			if i > 0 { // the second is the first of which the kernel says that nobody takes it
				transporttest.WorldOf(t).Sleep(10 * time.Millisecond) // in which who thinks the lane broken takes it out of service
			}
		}
		transporttest.Both(t, "what was sent", all...)
		if n := messages * size; !bytes.Equal(rb[:n], sb[:n]) {
			t.Error("what came is not what was sent")
		}
		s.Unlock()
		transporttest.CloseBoth(t, s, r)
	})
}

// The last lane breaks while grants are read from it that fill the read buffer exactly. The message is not sent
// over it, although its grant has arrived, but over the lane that replaces it.
func TestGrantsThenEnd(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.PairTCP(t, 1)
		for _, c := range []end{s, r} { // one lane, however many interfaces this machine has
			rest(c, c.Lanes()[1:]...)
		}
		from := sockets(s)[0]
		m, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		b := conn.Buffer{Addr: m.Addr(), Size: 64, Tag: 1, Region: rg}
		input, one := from.Input(), tcp.FrameHeader+tcp.GrantBuffer+2*from.CodeSize()
		left := input
		for ; left%one != 0; left -= one + tcp.GrantBuffer {
			transporttest.Irecv(t, r, b, b)
		}
		for range left / one {
			transporttest.Irecv(t, r, b)
		}
		exit(t, r)
		transporttest.WorldOf(t).Sleep(time.Second) // the grants and the end have come
		if q, err := s.Isend(m.Addr()+2048, 64, 1, sg); q != nil || err != nil {
			t.Fatalf("isend on a connection without a lane: %v, %v", q, err)
		}
		transporttest.Isend(t, s, m, 2048, 64, 1, sg)
		transporttest.CloseBoth(t, s, r)
	})
}
