package tcp_test

// Tests of the kernel and of this process's memory and goroutines: two transports of this process connect over
// the existing interfaces.

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane/tcp"
)

// leaks fails the test if it leaves goroutines or descriptors behind, apart from the descriptors of Go's
// network poller.
func leaks(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // which starts the poller
	if err == nil {
		err = ln.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Leaks(t)
}

// large is the size of a message that is larger than the kernel's buffers can grow.
const large = 16 << 20

// overKernel runs a test over the kernel's sockets, without and with authentication.
func overKernel(t *testing.T, f func(t *testing.T, s *conn.Sender, r *conn.Receiver)) {
	for name, change := range map[string][]func(*transport.Options){"plain": nil, "checked": {transporttest.Checked}} {
		t.Run(name, func(t *testing.T) {
			leaks(t)
			s, r := transporttest.PairTCP(t, 2, change...)
			f(t, s, r)
		})
	}
}

// Memory that is registered but not mapped is an error of its connection only.
func TestUnmapped(t *testing.T) {
	overKernel(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		b := transporttest.Block(t, s, r, large)
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

// Memory that is registered but not mapped is an error of its connection only, if a short message is copied to
// or from it.
func TestUnmappedShort(t *testing.T) {
	for _, sending := range []bool{true, false} {
		t.Run(fmt.Sprintf("sending %v", sending), func(t *testing.T) {
			overKernel(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
				sm, _ := transporttest.Memory(t, 64)
				rm, _ := transporttest.Memory(t, 64)
				sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
				rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: 64, Region: rg})
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

// A call moves a limited number of bytes, so that a busy connection leaves time on its thread to the others.
func TestShare(t *testing.T) {
	overKernel(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		b := transporttest.Block(t, s, r, large)
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

// A connection does nothing between calls, because no goroutine works for it.
func TestIdle(t *testing.T) {
	leaks(t)
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
