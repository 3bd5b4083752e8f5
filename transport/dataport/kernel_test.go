package dataport

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
	"ncclmesh/transport/sock"
)

// leaks fails the test if it leaves descriptors or goroutines behind.
func leaks(t *testing.T) {
	t.Helper()
	fds := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	if c, err := net.Dial("udp", "127.0.0.1:9"); err == nil { // starts the poller, which stays
		_ = c.Close()
	}
	goroutines, files := runtime.NumGoroutine(), fds()
	t.Cleanup(func() {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			g, f := runtime.NumGoroutine(), fds()
			if g <= goroutines && f <= files {
				return
			}
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Errorf("left behind: %d goroutines (%d before), %d descriptors (%d before)\n%s", g, goroutines, f, files, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// Two ends connect over both address families, and their descriptors transfer bytes without blocking.
func TestLane(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			a := netip.MustParseAddr(addr)
			if ln, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String()); err != nil {
				require.Skip(t, require.IPv6, err.Error())
			} else {
				_ = ln.Close()
			}
			leaks(t)
			e := New(Config{KeepAlive: 10 * time.Second})
			t.Cleanup(func() {
				if err := e.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			to := listen(t, e, a)
			if again := listen(t, e, a); again != to {
				t.Errorf("a second Listen gave %v, the first %v", again, to)
			}
			_, got := expect(t, e, end(a))
			out := dial(t, e, end(a), to)
			in := wait(t, "the lane", got)
			for _, s := range []*sock.Stream{out, in} {
				fd := s.Number()
				if n, err := unix.Read(fd, make([]byte, 1)); err != unix.EAGAIN {
					t.Errorf("reading nothing: %d, %v; want EAGAIN", n, err)
				}
				for _, o := range []struct{ level, opt, want int }{
					{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
					{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0},
				} {
					if v, err := unix.GetsockoptInt(fd, o.level, o.opt); err != nil || v != o.want {
						t.Errorf("option %d/%d is %d, %v; want %d", o.level, o.opt, v, err, o.want)
					}
				}
				if dev, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil || dev != "lo" {
					t.Errorf("bound to %q, %v; want lo", dev, err)
				}
			}
			if _, err := unix.Write(out.Number(), []byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(in.Number()), Events: unix.POLLIN}}, -1); err != nil {
				t.Fatal(err)
			}
			if n, err := unix.Read(in.Number(), make([]byte, 8)); n != 1 || err != nil {
				t.Errorf("read: %d, %v; want a byte", n, err)
			}
			s := e.Stats()
			if diff := cmp.Diff(Stats{Dialled: 1, Accepted: 1}, s); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			closeAll(t, out, in)
		})
	}
}
