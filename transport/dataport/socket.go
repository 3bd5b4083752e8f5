package dataport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

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

// connect opens a connection from the end's address and interface.
func (e *Endpoint) connect(ctx context.Context, end End, to netip.AddrPort) (*os.File, error) {
	f, err := forkfd.Dialer{Addr: end.Addr, Netdev: end.Netdev, Ports: e.cfg.PortRange}.Dial(ctx, to)
	switch {
	case err == nil:
		return f, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer: %w", err)
	}
	return nil, fmt.Errorf("connect from %v on %s to %v: %w", end.Addr, end.Netdev, to, err)
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

// Conn makes a connection of a descriptor that came from this package, and takes that
// over, whatever comes of it.
func Conn(fd int) (*net.TCPConn, error) {
	return forkfd.Conn(os.NewFile(uintptr(fd), "tcp"))
}
