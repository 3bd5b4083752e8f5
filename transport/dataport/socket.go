package dataport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// Every descriptor is marked while it is open, for forked children to close.

// CloseFD closes a descriptor that came from this package.
func CloseFD(fd int) (err error) {
	forkfd.Do(func() {
		forkfd.Clear(fd)
		err = os.NewSyscallError("close", unix.Close(fd))
	})
	return err
}

// bind ties a socket to an interface, so that addresses which several interfaces
// answer for cannot lead its packets elsewhere. Old kernels want privileges for
// that; routing by the address has to do then.
func bind(fd int, device string) error {
	if device == "" {
		return nil
	}
	err := unix.BindToDevice(fd, device)
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind to interface %s: %w", device, err)
	}
	return nil
}

// listen opens a listener.
func (e *Endpoint) listen(at place) (*forkfd.Listener, error) {
	var failed error
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		err := c.Control(func(fd uintptr) { failed = bind(int(fd), at.device) })
		return errors.Join(err, failed)
	}}
	return forkfd.Listen(e.ctx, &lc, "tcp", netip.AddrPortFrom(at.addr, 0).String())
}

// connect opens a connection from the end's address and interface.
func connect(ctx context.Context, end End, to netip.AddrPort) (*os.File, error) {
	var fd int
	var err error
	forkfd.Do(func() {
		if fd, err = unix.Socket(family(end.Addr), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err == nil {
			forkfd.Mark(fd)
		}
	})
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "lane") // in Go's poller, as it does not block
	if err := connectFD(ctx, f, fd, end, to); err != nil {
		_ = forkfd.Close(f)
		return nil, err
	}
	return f, nil
}

func connectFD(ctx context.Context, f *os.File, fd int, end End, to netip.AddrPort) error {
	if err := bind(fd, end.Device); err != nil {
		return err
	}
	// Ephemeral ports are chosen at connect, for each peer anew.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(end.Addr, 0))); err != nil {
		return fmt.Errorf("bind to %v: %w", end.Addr, err)
	}
	err := unix.Connect(fd, sockaddr(to))
	if err == unix.EINPROGRESS || err == unix.EINTR {
		err = connected(ctx, f)
	}
	if err == nil {
		var self, other unix.Sockaddr
		self, err = unix.Getsockname(fd)
		if err == nil {
			other, err = unix.Getpeername(fd)
		}
		if err == nil && addrPort(self) == addrPort(other) {
			err = unix.ECONNREFUSED // nobody listens, and the kernel connected us to ourselves
		}
	}
	if err != nil {
		return fmt.Errorf("connect from %v on %s to %v: %w", end.Addr, end.Device, to, err)
	}
	return nil
}

// connected waits until a connection attempt has succeeded or failed.
func connected(ctx context.Context, f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = rc.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = err
		case errno != 0:
			result = unix.Errno(errno)
		default:
			_, err := unix.Getpeername(int(fd))
			if err == unix.ENOTCONN {
				return false
			}
			result = err
		}
		return true
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
	return errors.Join(err, result)
}

// detach returns a descriptor of the connection that no poller knows, and that
// has the options of a lane. The connection must still be closed.
//
// TCP_USER_TIMEOUT is not among them: it also ends a connection whose peer lives
// and does not read, and a slow peer is no error.
func (e *Endpoint) detach(c syscall.Conn) (int, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	cerr := rc.Control(func(old uintptr) {
		forkfd.Do(func() {
			if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				forkfd.Mark(fd)
			}
		})
	})
	if err := errors.Join(cerr, err); err != nil {
		return -1, fmt.Errorf("duplicate the descriptor: %w", err)
	}
	idle, interval, count := e.keepAlive()
	for _, o := range []struct {
		name              string
		level, opt, value int
	}{
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, interval},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			_ = CloseFD(fd)
			return -1, fmt.Errorf("set %s to %d: %w", o.name, o.value, err)
		}
	}
	return fd, nil
}

// keepAlive is when the kernel asks a silent peer for a sign of life, every how
// many seconds again, and how often in vain. All of it fits the time that a
// silent peer has, where that is more than a second.
func (e *Endpoint) keepAlive() (idle, interval, count int) {
	silence := int(e.scaled(e.cfg.KeepAlive).Seconds())
	idle, interval = max(1, silence/2), max(1, silence/6)
	return idle, interval, min(max(1, (silence-idle)/interval), 3)
}

func family(a netip.Addr) int {
	if a.Unmap().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	addr := a.Addr().Unmap()
	if addr.Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: addr.As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: addr.As16(), ZoneId: zone(addr.Zone())}
}

// zone is the index of the interface that a zone names.
func zone(z string) uint32 {
	if z == "" {
		return 0
	}
	if n, err := strconv.ParseUint(z, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(z); err == nil {
		return uint32(i.Index)
	}
	return 0
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
