package tcp_test

// Two transports of this process connect over the interfaces that there are.

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/bundle"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/message"
)

func TestMain(m *testing.M) { transporttest.Main(m) }

// conn is either half of a connection.
type conn interface{ Bundle() *bundle.Bundle }

// sockets are those of a connection, by lane.
func sockets(c conn) (all []*tcp.Socket) {
	for _, l := range c.Bundle().Lanes() {
		all = append(all, tcp.SocketOf(l))
	}
	return all
}

// rest takes lanes out of service.
func rest(c conn, lanes ...*lane.Lane) {
	c.Bundle().Lock()
	defer c.Bundle().Unlock()
	for _, l := range lanes {
		l.Rest()
	}
}

// A send is done when the receiver has its bytes, however many of them the kernels
// hold: a sender whose process ends then, with grants unread, which makes its kernel
// drop what it still has, takes nothing away.
func TestDelivered(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
		const n, more, each = 12, 4, 8 << 10
		sm, sb := transporttest.Memory(t, n*each)
		rm, rb := transporttest.Memory(t, (n+more)*each)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(sb, 9)
		var sent, got []*message.Request
		post := func() {
			got = append(got, transporttest.Irecv(t, r, message.Buffer{Addr: rm.Addr() + uintptr(len(got)*each), Size: each, Region: rg}))
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
			}
		}
		left := append(append([]*message.Request(nil), sent...), got[:n]...)
		transporttest.Await(t, "all messages", func() bool {
			if ok, err := got[n].Test(nil); ok || err != nil {
				t.Fatalf("a receive of nothing: done %v, error %v", ok, err)
			}
			left = slices.DeleteFunc(left, func(q *message.Request) bool {
				ok, err := q.Test(nil)
				if err != nil {
					t.Fatal(err)
				}
				return ok
			})
			return len(left) == 0
		})
		for _, k := range sockets(s) { // as the kernel does for a process that exits
			if err := k.Replace(-1); err != nil {
				t.Error(err)
			}
		}
		if !bytes.Equal(sb, rb[:n*each]) {
			t.Error("the bytes differ")
		}
		rest(s, s.Bundle().Lanes()...)
		transporttest.CloseBoth(t, s, r)
	})
}

// Memory that is registered and not there is an error of its connection alone.
func TestUnmapped(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
		b := transporttest.Block(t, s, r, transporttest.Most(s))
		for range 3 { // both sides are in the middle of parts
			if ok, err := b.Recv.Test(nil); ok || err != nil {
				t.Fatalf("receive: %v, %v", ok, err)
			}
		}
		if err := errors.Join(unix.Mprotect(b.From.Bytes(), unix.PROT_NONE), unix.Mprotect(b.To.Bytes(), unix.PROT_NONE)); err != nil {
			t.Fatal(err)
		}
		var first error
		transporttest.Await(t, "an error", func() bool {
			if _, first = b.Recv.Test(nil); first == nil {
				_, first = b.Send.Test(nil)
			}
			return first != nil
		})
		if !errors.Is(first, fault.ErrUsage) || errors.Is(first, syscall.EFAULT) {
			t.Errorf("error %v, want ErrUsage that says what is wrong", first)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// The same when a short message is copied, not read, to where it should go, or from where it lies.
func TestUnmappedShort(t *testing.T) {
	for _, sending := range []bool{true, false} {
		t.Run(fmt.Sprintf("sending %v", sending), func(t *testing.T) {
			transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
				sm, _ := transporttest.Memory(t, 64)
				rm, _ := transporttest.Memory(t, 64)
				sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
				rq := transporttest.Irecv(t, r, message.Buffer{Addr: rm.Addr(), Size: 64, Region: rg})
				gone := rm
				if sending {
					gone = sm
				}
				if err := gone.Free(); err != nil {
					t.Fatal(err)
				}
				var err error
				transporttest.Await(t, "an error", func() bool {
					sq, failed := s.Isend(sm.Addr(), 64, 0, sg)
					switch err = failed; {
					case err == nil && sq != nil && sending:
						_, err = sq.Test(nil)
					case err == nil && !sending:
						_, err = rq.Test(nil)
					}
					return err != nil
				})
				if !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), "not mapped") {
					t.Errorf("error %v, want ErrUsage that says what is wrong", err)
				}
				transporttest.CloseBoth(t, s, r)
			})
		})
	}
}

// A slow receiver is no error, and a peer that acknowledges nothing is one.
func TestSlow(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
		b := transporttest.Block(t, s, r, transporttest.Most(s))
		for _, k := range sockets(s) {
			k.Hurry(time.Millisecond)
		}
		for start := time.Now(); time.Since(start) < 2500*time.Millisecond; time.Sleep(time.Millisecond) {
			if ok, err := b.Send.Test(nil); ok || err != nil {
				t.Fatalf("a send to a slow receiver: done %v, error %v", ok, err)
			}
		}
		transporttest.Both(t, "the message", b.Send, b.Recv)
		transporttest.CloseBoth(t, s, r)
	})
}

// A lane whose address is taken away while nothing is under way fails: the kernel sends
// nothing of what comes then, and so has nothing that could be acknowledged.
func TestNoRoute(t *testing.T) {
	transporttest.Leaks(t)
	s, r := transporttest.PairTCP(t, 1)
	lanes := slices.Clone(s.Bundle().Lanes()) // another takes the place of one that fails
	if len(lanes) < 2 || lanes[1].Port.Now().Netdev != "p1" {
		require.Skip(t, require.Netns, "this process has no network of its own")
	}
	const size = 1 << 20
	sm, _ := transporttest.Memory(t, size)
	rm, _ := transporttest.Memory(t, size)
	sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
	ip := func(what string) {
		if out, err := exec.Command("ip", "addr", what, "192.168.2.1/24", "dev", "p1").CombinedOutput(); err != nil {
			t.Errorf("ip addr %s: %v: %s", what, err, out)
		}
	}
	ip("del")
	defer ip("add")
	for _, k := range append(sockets(s), sockets(r)...) {
		k.Hurry(time.Millisecond)
	}
	transporttest.Both(t, "the message", transporttest.Irecv(t, r, message.Buffer{Addr: rm.Addr(), Size: size, Region: rg}), transporttest.Isend(t, s, sm, 0, size, 0, sg))
	s.Bundle().Lock()
	if lanes[1].InService() || !lanes[0].InService() {
		t.Errorf("in service: %v is %v, %v is %v", lanes[0], lanes[0].State(), lanes[1], lanes[1].State())
	}
	s.Bundle().Unlock()
	transporttest.CloseBoth(t, s, r)
}

// A call moves so many bytes and no more, so that a busy connection leaves its
// thread to the others.
func TestShare(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
		b := transporttest.Block(t, s, r, transporttest.Most(s))
		arrived := func() (all []int) {
			for _, k := range sockets(r) {
				all = append(all, k.Arrived())
			}
			return all
		}
		for before := arrived(); before[0] < 2*tcp.PollBytes; {
			if ok, err := b.Recv.Test(nil); ok || err != nil {
				t.Fatalf("a receive whose sender waits: done %v, error %v", ok, err)
			}
			now := arrived()
			for i := range now {
				if moved := now[i] - before[i]; moved > tcp.PollBytes+tcp.ReadAhead {
					t.Fatalf("lane %d: one call moved %d bytes; %d can be", i, moved, tcp.PollBytes)
				}
			}
			before = now
		}
		transporttest.Both(t, "the message", b.Send, b.Recv)
		transporttest.CloseBoth(t, s, r)
	})
}

// The kernel takes small messages as they come, so no lane ever has a backlog:
// they go over all lanes by turns.
func TestTurns(t *testing.T) {
	transporttest.Leaks(t)
	s, r := transporttest.PairTCP(t, 4)
	const turns, size = 5, 2048
	sm, _ := transporttest.Memory(t, size)
	rm, _ := transporttest.Memory(t, size)
	sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
	for range turns * len(s.Bundle().Lanes()) {
		transporttest.Both(t, "the message", transporttest.Irecv(t, r, message.Buffer{Addr: rm.Addr(), Size: size, Region: rg}), transporttest.Isend(t, s, sm, 0, size, 0, sg))
	}
	for _, l := range s.Bundle().Lanes() {
		if want := uint64(turns * size); l.Bytes.Value() != want {
			t.Errorf("%v carried %d bytes, want %d", l, l.Bytes.Value(), want)
		}
	}
	transporttest.CloseBoth(t, s, r)
}

// A connection that is not called does nothing, as nothing runs for it.
func TestIdle(t *testing.T) {
	transporttest.Leaks(t)
	a, b := transporttest.NewTCP(t, 2), transporttest.NewTCP(t, 2)
	s, r := transporttest.Connect(t, a, b)
	before := runtime.NumGoroutine()
	for range 8 {
		s, r := transporttest.Connect(t, a, b)
		defer transporttest.CloseBoth(t, s, r)
	}
	transporttest.Await(t, "the goroutines that set up", func() bool { return runtime.NumGoroutine() <= before })
	transporttest.CloseBoth(t, s, r)
}

// A region of memory that only a device can reach is refused.
func TestDmaBuf(t *testing.T) {
	transporttest.Leaks(t)
	s, r := transporttest.PairTCP(t, 1)
	if _, err := s.RegDmaBufMR(0x1000, 4096, 0, 0); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("error %v, want ErrUsage", err)
	}
	transporttest.CloseBoth(t, s, r)
}

// When the peer's process is gone the sockets say so at once: no lane stays in service.
func TestPeerGone(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
		b := transporttest.Block(t, s, r, transporttest.Most(s))
		rest(r, r.Bundle().Lanes()...)
		lanes := slices.Clone(s.Bundle().Lanes())
		for _, k := range sockets(r) { // as the kernel does for a process that is killed
			if err := unix.Shutdown(k.FD(), unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			if err := unix.SetsockoptLinger(k.FD(), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
				t.Fatal(err)
			}
			r.Bundle().Lock()
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			r.Bundle().Unlock()
		}
		transporttest.Await(t, "the end of all lanes", func() bool {
			if ok, err := b.Send.Test(nil); ok || err != nil {
				t.Fatalf("done %v, error %v", ok, err)
			}
			s.Bundle().Lock()
			defer s.Bundle().Unlock()
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

// What a peer sent before it closed its sockets is read, though they take no grants any more.
func TestPeerGoneBehindMessages(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *message.SendConn, r *message.RecvConn) {
		const messages, size = 6, 24
		sm, sb := transporttest.Memory(t, messages*size)
		rm, rb := transporttest.Memory(t, messages*size)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(sb, 1)
		for i := range messages {
			transporttest.Done(t, "a send", transporttest.Isend(t, s, sm, i*size, size, 0, sg))
		}
		for _, k := range sockets(s) { // grants that come from here on have the kernel reset the connection
			if err := unix.Shutdown(k.FD(), unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
		}
		s.Bundle().Lock() // it is gone, and sends nothing again
		var all []*message.Request
		for i := range messages {
			all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, i*size, size, 0, rg)))
			if i > 0 { // the second is the first of which the kernel says that nobody takes it
				time.Sleep(10 * time.Millisecond) // in which who thinks the lane broken takes it out of service
			}
		}
		transporttest.Both(t, "what was sent", all...)
		if n := messages * size; !bytes.Equal(rb[:n], sb[:n]) {
			t.Error("what came is not what was sent")
		}
		s.Bundle().Unlock()
		transporttest.CloseBoth(t, s, r)
	})
}

// The last lane breaks while grants are read from it, which fill what is read at
// once to its last byte: nothing is sent over it, although the grant is there, but over
// the lane that takes its place.
func TestGrantsThenEnd(t *testing.T) {
	transporttest.Leaks(t)
	s, r := transporttest.PairTCP(t, 1)
	for _, c := range []conn{s, r} { // one lane, however many interfaces this machine has
		rest(c, c.Bundle().Lanes()[1:]...)
	}
	from, to := sockets(s)[0], sockets(r)[0]
	m, _ := transporttest.Memory(t, 4096)
	sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
	b := message.Buffer{Addr: m.Addr(), Size: 64, Tag: 1, Region: rg}
	input, one := from.Input(), tcp.FrameHeader+tcp.GrantBuffer+2*from.CodeSize()
	left := input
	for ; left%one != 0; left -= one + tcp.GrantBuffer {
		transporttest.Irecv(t, r, b, b)
	}
	for range left / one {
		transporttest.Irecv(t, r, b)
	}
	if err := unix.Shutdown(to.FD(), unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	transporttest.Await(t, "the grants and the end", func() bool {
		n, err := unix.IoctlGetInt(from.FD(), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		info, err := unix.GetsockoptTCPInfo(from.FD(), unix.IPPROTO_TCP, unix.TCP_INFO)
		const closeWait = 8 // of the kernel's TCP states
		return err == nil && n >= input && info.State == closeWait
	})
	if q, err := s.Isend(m.Addr()+2048, 64, 1, sg); q != nil || err != nil {
		t.Fatalf("isend on a connection without a lane: %v, %v", q, err)
	}
	transporttest.Isend(t, s, m, 2048, 64, 1, sg)
	transporttest.CloseBoth(t, s, r)
}
