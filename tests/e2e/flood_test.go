package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const tooMany = `control: refused a connection; .* reason="too many unauthenticated connections from one address"`

// Connections pour in on every port of a rank, from its peer's own node, while the links between the two processes are
// reset: the job does not notice.
func TestFlooded(t *testing.T) {
	f := newFabric(t, twins)
	j := f.start(spec{env: []string{"NCCL_MESH_TRANSPORT=tcp"}, args: f.endless("--work soak --max 64K --timeout 300")})
	j.await("a", `a -> b conn \d+: lane`)
	a := j.rank("a")

	rendezvous := fmt.Sprint(29500 + f.jobs)
	flood := f.command("b", os.Args[0])
	flood.Env = append(flood.Env, "E2E_HELPER=flood")
	var did bytes.Buffer
	flood.Stdout, flood.Stderr = &did, &did
	targets, err := flood.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flood.Process.Kill(); _ = flood.Wait() })
	var control, data int
	var links []int // of the control plane
	for _, s := range sockets(t, a.cmd.Process.Pid) {
		switch {
		case fmt.Sprint(s.local.Port()) == rendezvous || fmt.Sprint(s.peer.Port()) == rendezvous:
		case !s.peer.IsValid() && s.local.Addr().IsUnspecified():
			control++
			fmt.Fprintf(targets, "10.99.0.1:%d\n", s.local.Port())
		case !s.peer.IsValid():
			data++
			fmt.Fprintln(targets, s.local)
		case strings.HasPrefix(s.peer.String(), "10.99.0.2:"):
			links = append(links, s.fd)
			continue
		}
		_ = unix.Close(s.fd)
	}
	if control != 1 || data != 2 || len(links) == 0 {
		j.fatalf("rank a has %d control and %d data ports and %d links, want 1, 2 and some", control, data, len(links))
	}
	fmt.Fprintln(targets)
	j.await("a", tooMany) // they are there
	for _, fd := range links {
		var unspecified unix.RawSockaddr // whose family is AF_UNSPEC: to connect to that ends a connection, with a reset
		if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified)); errno != 0 {
			t.Errorf("reset: %v", errno)
		}
		_ = unix.Close(fd)
	}
	j.await("a", `control: a session continues over another link`)
	j.await("a", `data port: refused a connection; .* reason="too many unauthenticated connections from one address`)
	j.suffer("moves", "moves")
	j.enough().ok()
	if err := errors.Join(targets.Close(), flood.Wait()); err != nil {
		t.Errorf("%v: %s", err, &did)
	}
	t.Logf("%s", &did)
	j.must("a", `control plane closed: .* [1-9]\d* links cut, [1-9]\d* resumed`)
}

// tcpSocket is a TCP socket of another process, as a descriptor of this one.
type tcpSocket struct {
	fd          int
	local, peer netip.AddrPort // the latter of one that is connected
}

// sockets are the TCP sockets of a process.
func sockets(t *testing.T, pid int) (all []tcpSocket) {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if to, err := os.Readlink(name); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		var number int
		if _, err := fmt.Sscan(filepath.Base(name), &number); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			continue // it has been closed meanwhile
		}
		s := tcpSocket{fd: fd}
		if at, err := unix.Getsockname(fd); err == nil {
			s.local = addrPort(at)
		}
		if at, err := unix.Getpeername(fd); err == nil {
			s.peer = addrPort(at)
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM || s.local.Port() == 0 {
			_ = unix.Close(fd)
			continue
		}
		all = append(all, s)
	}
	return all
}

func init() { helpers["flood"] = flood }

// flood keeps many silent connections open to each address that standard input names, new ones all the time, until that
// ends.
func flood() error {
	const held = 400
	in := bufio.NewScanner(os.Stdin)
	var targets []string
	for in.Scan() && in.Text() != "" {
		targets = append(targets, in.Text())
	}
	ctx, cancel := context.WithCancel(context.Background())
	made := make(chan int)
	for _, to := range targets {
		go func() {
			var open [held]net.Conn
			n := 0
			for dialer := (net.Dialer{Timeout: time.Second}); ctx.Err() == nil; {
				c, err := dialer.DialContext(ctx, "tcp", to)
				if err != nil {
					time.Sleep(time.Millisecond) // the job is over, or its queue is full
					continue
				}
				if old := open[n%held]; old != nil {
					_ = old.Close()
				}
				open[n%held] = c
				n++
			}
			made <- n
		}()
	}
	start := time.Now()
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	for _, to := range targets {
		fmt.Printf("%d connections to one of the ports, such as %s, in %v\n", <-made, to, time.Since(start).Round(time.Millisecond))
	}
	return err
}

// addrPort is the address and port of a TCP socket as the kernel gives them.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
