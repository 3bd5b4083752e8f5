package transport

// The tests of TCP lanes need no RDMA, real or fake: two transports of this
// process connect over the interfaces that there are.

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/dataport"
)

func tcpTransport(t *testing.T, streams int, change ...func(*Options)) *Transport {
	t.Helper()
	o := Options{Transport: TransportTCP, TCPStreams: streams, TCPCheck: CheckOff, TimeScale: 5, Log: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	for _, f := range change {
		f(&o)
	}
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

// tcpPair connects two new transports.
func tcpPair(t *testing.T, streams int, change ...func(*Options)) (*SendConn, *RecvConn) {
	t.Helper()
	s, r := connect(t, tcpTransport(t, streams, change...), tcpTransport(t, streams, change...))
	if len(s.sockets) < streams || len(s.sockets) != len(s.lanes) {
		t.Fatalf("%d lanes, %d sockets; want %d streams on every path", len(s.lanes), len(s.sockets), streams)
	}
	return s, r
}

// checked has every lane checked.
func checked(o *Options) { o.TCPCheck = CheckOn }

// overTCP runs a test with one and with four streams on a path, and with two that
// are checked.
func overTCP(t *testing.T, f func(t *testing.T, s *SendConn, r *RecvConn)) {
	for _, tt := range []struct {
		name    string
		streams int
		change  []func(*Options)
	}{{"1 stream", 1, nil}, {"4 streams", 4, nil}, {"2 streams, checked", 2, []func(*Options){checked}}} {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			s, r := tcpPair(t, tt.streams, tt.change...)
			for _, k := range append(slices.Clone(s.sockets), r.sockets...) {
				if k.sealer.on() != (tt.change != nil) || k.opener.on() != k.sealer.on() {
					t.Fatalf("%v: checked %v and %v", k.lane, k.sealer.on(), k.opener.on())
				}
			}
			f(t, s, r)
		})
	}
}

// both tests a send and its receive by turns until both are done: over TCP
// neither gets there without the other.
func both(t *testing.T, what string, reqs ...*Request) {
	t.Helper()
	left := append([]*Request(nil), reqs...)
	await(t, what, func() bool {
		for i := 0; i < len(left); i++ {
			ok, err := left[i].Test()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if ok {
				left = append(left[:i], left[i+1:]...)
				i--
			}
		}
		return len(left) == 0
	})
}

func TestTCPSizes(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		const room = 9 << 20
		sm, sb := memory(t, room)
		rm, rb := memory(t, room+256)
		sg, rg := register(t, s, sm), register(t, r, rm)
		for i, size := range []int{0, 1, 7, 8, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 65535, 65536, 65537, 100001, 1 << 17, 1<<17 + 1, 1<<19 + 3, 1 << 20, pollBytes + 17, room} {
			fill(sb[:size], i)
			clear(rb)
			rq := irecv(t, r, Buffer{rm.Addr(), size + 100, 5, rg})
			sq := isend(t, s, sm, 0, size, 5, sg)
			both(t, fmt.Sprintf("message of %d", size), sq, rq)
			if rq.Size(0) != size || sq.Size(0) != size {
				t.Errorf("size %d: sent %d, received %d", size, sq.Size(0), rq.Size(0))
			}
			if !bytes.Equal(sb[:size], rb[:size]) {
				t.Errorf("size %d: the bytes differ", size)
			}
			if i := bytes.IndexFunc(rb[size:], func(c rune) bool { return c != 0 }); i >= 0 {
				t.Errorf("size %d: byte %d beyond it was written", size, i)
			}
		}
		for _, l := range s.lanes {
			if l.bytes == 0 {
				t.Errorf("%v carried nothing", l)
			}
		}
		closeBoth(t, s, r)
	})
}

func TestTCPGroup(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		const each = 200 << 10
		sm, sb := memory(t, maxSubs*each)
		rm, rb := memory(t, maxSubs*each)
		sg, rg := register(t, s, sm), register(t, r, rm)
		for n := 1; n <= maxSubs; n++ {
			fill(sb, n)
			clear(rb)
			var bufs []Buffer
			for i := range n {
				bufs = append(bufs, Buffer{rm.Addr() + uintptr(i*each), each, int32(100 + i), rg})
			}
			all := []*Request{irecv(t, r, bufs...)}
			await(t, "the group's grant", func() bool {
				if q, err := s.Isend(sm.Addr(), 1, 99, sg); q != nil || err != nil {
					t.Fatalf("a send with a tag nobody waits for: %v, %v", q, err)
				}
				return s.wire.slot(s.head)[0].seq == s.head
			})
			for k := range n {
				i := n - 1 - k
				size := each - i
				if i == 2 {
					size = 0
				}
				all = append(all, isend(t, s, sm, i*each, size, int32(100+i), sg))
			}
			both(t, "group", all...)
			for i := range n {
				size := each - i
				if i == 2 {
					size = 0
				}
				if got := all[0].Size(i); got != size {
					t.Errorf("group of %d: buffer %d has %d bytes, want %d", n, i, got, size)
				}
				if !bytes.Equal(rb[i*each:i*each+size], sb[i*each:i*each+size]) {
					t.Errorf("group of %d: buffer %d differs", n, i)
				}
			}
		}
		closeBoth(t, s, r)
	})
}

// A full window of receives, messages of every size up to a mebibyte, all under
// way at once in random order of testing.
func TestTCPMany(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		rng := rand.New(rand.NewPCG(1, 2))
		const each = 96 << 10
		sm, sb := memory(t, window*each)
		rm, rb := memory(t, window*each)
		sg, rg := register(t, s, sm), register(t, r, rm)
		for round := range 3 {
			fill(sb, round)
			clear(rb)
			sizes := make([]int, window)
			var all []*Request
			for i := range window {
				sizes[i] = rng.IntN(each + 1)
				all = append(all, irecv(t, r, Buffer{rm.Addr() + uintptr(i*each), each, 0, rg}))
			}
			if q, err := r.Irecv([]Buffer{{rm.Addr(), 1, 0, rg}}); q != nil || err != nil {
				t.Fatalf("receive beyond the window: %v, %v", q, err)
			}
			for i := range window {
				all = append(all, isend(t, s, sm, i*each, sizes[i], 0, sg))
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			both(t, "all messages", all...)
			for i := range window {
				if !bytes.Equal(rb[i*each:i*each+sizes[i]], sb[i*each:i*each+sizes[i]]) {
					t.Fatalf("round %d: message %d of %d bytes differs", round, i, sizes[i])
				}
			}
		}
		closeBoth(t, s, r)
	})
}

func TestTCPNoAllocations(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		sm, _ := memory(t, 1<<20)
		rm, _ := memory(t, 1<<20)
		sg, rg := register(t, s, sm), register(t, r, rm)
		bufs := []Buffer{{rm.Addr(), 1 << 20, 0, rg}}
		for _, size := range []int{8, pieceSize, 1 << 20} {
			n := testing.AllocsPerRun(100, func() {
				rq, err := r.Irecv(bufs)
				if rq == nil || err != nil {
					t.Fatalf("receive: %v, %v", rq, err)
				}
				var sq *Request
				for sq == nil {
					if sq, err = s.Isend(sm.Addr(), size, 0, sg); err != nil {
						t.Fatal(err)
					}
				}
				for received, sent := false, false; !received || !sent; {
					if !sent {
						sent, err = sq.Test()
					}
					if err == nil && !received {
						received, err = rq.Test()
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			})
			if n != 0 {
				t.Errorf("%d bytes: %v allocations", size, n)
			}
		}
		closeBoth(t, s, r)
	})
}

// blocked makes a send that cannot end, as the receiver does not read.
func blocked(t *testing.T, s *SendConn, r *RecvConn) (sm, rm []byte, sg, rg *Region, sq, rq *Request) {
	t.Helper()
	const size = 64 << 20
	mmap := func() []byte {
		b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return b
	}
	sm, rm = mmap(), mmap()
	reg := func(c interface {
		RegMR(addr, length uintptr) (*Region, error)
	}, b []byte) *Region {
		g, err := c.RegMR(addressOf(b), uintptr(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	sg, rg = reg(s, sm), reg(r, rm)
	rq = irecv(t, r, Buffer{addressOf(rm), size, 0, rg})
	await(t, "the send", func() bool {
		var err error
		if sq, err = s.Isend(addressOf(sm), size, 0, sg); err != nil {
			t.Fatal(err)
		}
		return sq != nil
	})
	for range 50 {
		if ok, err := sq.Test(); ok || err != nil {
			t.Fatalf("a send to a receiver that does not read: %v, %v", ok, err)
		}
	}
	return sm, rm, sg, rg, sq, rq
}

// After DeregMR nothing touches the memory, whatever is outstanding: it is taken
// away altogether, and both sides go on testing.
func TestTCPDeregOutstanding(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, func(t *testing.T) {
			overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
				sm, rm, sg, rg, sq, rq := blocked(t, s, r)
				for range 3 {
					if ok, err := rq.Test(); ok || err != nil {
						t.Fatalf("receive: %v, %v", ok, err)
					}
				}
				if side == "sender" {
					if err := s.DeregMR(sg); err != nil {
						t.Fatal(err)
					}
					if err := unix.Mprotect(sm, unix.PROT_NONE); err != nil {
						t.Fatal(err)
					}
				} else {
					if err := r.DeregMR(rg); err != nil {
						t.Fatal(err)
					}
					if err := unix.Mprotect(rm, unix.PROT_NONE); err != nil {
						t.Fatal(err)
					}
				}
				wantErr := func(what string, q *Request, usage bool) {
					await(t, what, func() bool {
						ok, err := q.Test()
						if ok {
							t.Fatalf("%s is done", what)
						}
						if err != nil && errors.Is(err, ErrUsage) != usage {
							t.Fatalf("%s: %v", what, err)
						}
						return err != nil
					})
				}
				wantErr("the send's end", sq, side == "sender")
				wantErr("the receive's end", rq, side == "receiver")
				closeBoth(t, s, r)
			})
		})
	}
}

// Close in the middle of a transfer: the other side hears of it, nobody touches
// memory that is gone.
func TestTCPCloseOutstanding(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, func(t *testing.T) {
			overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
				_, _, _, _, sq, rq := blocked(t, s, r)
				left := rq
				var err error
				if side == "sender" {
					err = s.Close()
				} else {
					err, left = r.Close(), sq
				}
				if err != nil {
					t.Fatal(err)
				}
				await(t, "the other side's error", func() bool {
					ok, err := left.Test()
					if ok || err != nil && !errors.Is(err, ErrPeer) {
						t.Fatalf("done %v, error %v", ok, err)
					}
					return err != nil
				})
				closeBoth(t, s, r)
			})
		})
	}
}

// A send is done when the receiver has its bytes, however many of them the kernels
// hold: a sender whose process ends then, with grants unread, which makes its kernel
// drop what it still has, takes nothing away.
func TestTCPDelivered(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		const n, more, each = 12, 4, 8 << 10
		sm, sb := memory(t, n*each)
		rm, rb := memory(t, (n+more)*each)
		sg, rg := register(t, s, sm), register(t, r, rm)
		fill(sb, 9)
		var sent, got []*Request
		post := func() { got = append(got, irecv(t, r, Buffer{rm.Addr() + uintptr(len(got)*each), each, 0, rg})) }
		for range n {
			post()
		}
		for i := range n {
			sent = append(sent, isend(t, s, sm, i*each, each, 0, sg))
		}
		for range more {
			post() // which the sender does not read
		}
		for i, q := range sent { // the kernels have all of it
			for range 100 {
				if ok, err := q.Test(); ok || err != nil {
					t.Fatalf("send %d before the receiver looked: done %v, error %v", i, ok, err)
				}
			}
		}
		left := append(append([]*Request(nil), sent...), got[:n]...)
		await(t, "all messages", func() bool {
			if ok, err := got[n].Test(); ok || err != nil {
				t.Fatalf("a receive of nothing: done %v, error %v", ok, err)
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
		for _, k := range s.sockets { // as the kernel does for a process that exits
			if err := dataport.CloseFD(k.fd); err != nil {
				t.Error(err)
			}
			k.fd = -1
		}
		if !bytes.Equal(sb, rb[:n*each]) {
			t.Error("the bytes differ")
		}
		await(t, "the end of the other receives", func() bool {
			ok, err := got[n].Test()
			if ok {
				t.Fatal("a receive of nothing is done")
			}
			return err != nil
		})
		s.mu.Lock()
		for _, k := range s.sockets {
			k.up = false
		}
		s.mu.Unlock()
		closeBoth(t, s, r)
	})
}

// Memory that is registered and not there is an error of its connection alone.
func TestTCPUnmapped(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		sm, rm, _, _, sq, rq := blocked(t, s, r)
		for range 3 { // both sides are in the middle of parts
			if ok, err := rq.Test(); ok || err != nil {
				t.Fatalf("receive: %v, %v", ok, err)
			}
		}
		if err := errors.Join(unix.Mprotect(sm, unix.PROT_NONE), unix.Mprotect(rm, unix.PROT_NONE)); err != nil {
			t.Fatal(err)
		}
		var first error
		await(t, "an error", func() bool {
			_, err := rq.Test()
			if first = err; err == nil {
				_, first = sq.Test()
			}
			return first != nil
		})
		if !errors.Is(first, ErrUsage) || errors.Is(first, syscall.EFAULT) {
			t.Errorf("error %v, want ErrUsage that says what is wrong", first)
		}
		closeBoth(t, s, r)
	})
}

// The same when a short message is copied, not read, to where it should go.
func TestTCPUnmappedShort(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		sm, _ := memory(t, 64)
		rm, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		sg := register(t, s, sm)
		rg, err := r.RegMR(addressOf(rm), 4096)
		if err != nil {
			t.Fatal(err)
		}
		rq := irecv(t, r, Buffer{addressOf(rm), 64, 0, rg})
		if err := unix.Munmap(rm); err != nil {
			t.Fatal(err)
		}
		isend(t, s, sm, 0, 64, 0, sg)
		await(t, "an error", func() bool {
			_, err = rq.Test()
			return err != nil
		})
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "not mapped") {
			t.Errorf("error %v, want ErrUsage that says what is wrong", err)
		}
		closeBoth(t, s, r)
	})
}

// A slow receiver is no error, and a peer that acknowledges nothing is one.
func TestTCPSlow(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		_, _, _, _, sq, rq := blocked(t, s, r)
		s.t.opts.LaneWait, s.t.opts.TimeScale = time.Millisecond, 1
		for start := time.Now(); time.Since(start) < 2500*time.Millisecond; time.Sleep(time.Millisecond) {
			if ok, err := sq.Test(); ok || err != nil {
				t.Fatalf("a send to a slow receiver: done %v, error %v", ok, err)
			}
		}
		both(t, "the message", sq, rq)
		closeBoth(t, s, r)
	})
}

// A call moves so many bytes and no more, so that a busy connection leaves its
// thread to the others.
func TestTCPShare(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		_, _, _, _, sq, rq := blocked(t, s, r)
		arrived := func() (all []int) {
			for _, k := range r.sockets {
				all = append(all, int(k.in.length)-k.rest-k.left)
			}
			return all
		}
		for before := arrived(); before[0] < 2*pollBytes; {
			if ok, err := rq.Test(); ok || err != nil {
				t.Fatalf("a receive whose sender waits: done %v, error %v", ok, err)
			}
			now := arrived()
			for i := range now {
				if moved := now[i] - before[i]; moved > pollBytes+readAhead {
					t.Fatalf("lane %d: one call moved %d bytes; %d can be", i, moved, pollBytes)
				}
			}
			before = now
		}
		both(t, "the message", sq, rq)
		closeBoth(t, s, r)
	})
}

// The kernel takes small messages as they come, so no lane ever has a backlog:
// they go over all lanes by turns.
func TestTCPTurns(t *testing.T) {
	leaks(t)
	s, r := tcpPair(t, 4)
	sm, _ := memory(t, 1024)
	rm, _ := memory(t, 1024)
	sg, rg := register(t, s, sm), register(t, r, rm)
	const turns = 5
	for range turns * len(s.lanes) {
		both(t, "the message", irecv(t, r, Buffer{rm.Addr(), 1024, 0, rg}), isend(t, s, sm, 0, 1024, 0, sg))
	}
	for _, l := range s.lanes {
		if want := uint64(turns * 1024); l.bytes != want {
			t.Errorf("%v carried %d bytes, want %d", l, l.bytes, want)
		}
	}
	closeBoth(t, s, r)
}

// A connection that is not called does nothing, as nothing runs for it.
func TestTCPIdle(t *testing.T) {
	leaks(t)
	a, b := tcpTransport(t, 2), tcpTransport(t, 2)
	s, r := connect(t, a, b)
	before := runtime.NumGoroutine()
	for range 8 {
		s, r := connect(t, a, b)
		defer closeBoth(t, s, r)
	}
	await(t, "the goroutines that set up", func() bool { return runtime.NumGoroutine() <= before })
	closeBoth(t, s, r)
}

func writeFD(fd int, b []byte) (int, error) { return unix.Write(fd, b) }

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// A region of memory that only a device can reach is refused.
func TestTCPDmaBuf(t *testing.T) {
	leaks(t)
	s, r := tcpPair(t, 1)
	if _, err := s.RegDmaBufMR(0x1000, 4096, 0, 0); !errors.Is(err, ErrUsage) {
		t.Errorf("error %v, want ErrUsage", err)
	}
	closeBoth(t, s, r)
}

// When the peer's process is gone the sockets say so at once.
func TestTCPPeerGone(t *testing.T) {
	overTCP(t, func(t *testing.T, s *SendConn, r *RecvConn) {
		_, _, _, _, sq, _ := blocked(t, s, r)
		for _, k := range r.sockets { // as the kernel does for a process that is killed
			if err := unix.Shutdown(k.fd, unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
			if err := unix.SetsockoptLinger(k.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
				t.Fatal(err)
			}
			r.mu.Lock()
			if err := k.close(); err != nil {
				t.Error(err)
			}
			r.mu.Unlock()
		}
		await(t, "the error", func() bool {
			ok, err := sq.Test()
			if ok || err != nil && !errors.Is(err, ErrPeer) {
				t.Fatalf("done %v, error %v", ok, err)
			}
			return err != nil
		})
		closeBoth(t, s, r)
	})
}
