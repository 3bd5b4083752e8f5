package forkfd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
)

// Listener accepts TCP connections and marks each before a fork can see it, which a net.TCPListener gives no chance to do.
type Listener struct {
	f      *os.File // non-blocking, in Go's poller
	addr   netip.AddrPort
	closed atomic.Bool
}

// Listen opens a marked listener at an address, on one interface when device
// names one. The zero address is all, where it hears both families if the kernel
// has both, and port 0 the first of the range that is free.
func Listen(ctx context.Context, at netip.AddrPort, netdev string, ports PortRange) (l *Listener, err error) {
	if at.Port() != 0 {
		return listen(ctx, at, netdev)
	}
	err = ports.bind(0, func(port uint16) (err error) {
		l, err = listen(ctx, netip.AddrPortFrom(at.Addr(), port), netdev)
		return err
	})
	return l, err
}

func listen(ctx context.Context, at netip.AddrPort, netdev string) (*Listener, error) {
	var l *Listener
	var err, bound error
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		err := c.Control(func(fd uintptr) { bound = BindToDevice(int(fd), netdev) })
		return errors.Join(err, bound)
	}}
	lc.SetMultipathTCP(false)
	Do(func() {
		var ln net.Listener
		if ln, err = lc.Listen(ctx, "tcp", net.TCPAddrFromAddrPort(at).String()); err == nil {
			l, err = take(ln.(*net.TCPListener))
		}
	})
	return l, err
}

// take puts a descriptor of its own in place of a listener's.
func take(ln *net.TCPListener) (*Listener, error) {
	defer ln.Close()
	rc, err := ln.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, errno := -1, syscall.Errno(0)
	err = rc.Control(func(old uintptr) {
		var n uintptr
		n, _, errno = syscall.Syscall(syscall.SYS_FCNTL, old, syscall.F_DUPFD_CLOEXEC, 0)
		fd = int(n)
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError("fcntl", errno)
	}
	if err != nil {
		return nil, err
	}
	Mark(fd)
	return &Listener{f: os.NewFile(uintptr(fd), "listener"), addr: AddrPort(ln.Addr())}, nil
}

// Addr is where it listens.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// AddrPort is one end of a TCP connection, or where a listener is, as the rest of
// this module has addresses: one of IPv4 is never written as one of IPv6.
func AddrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Close ends it, and an Accept that waits.
func (l *Listener) Close() error {
	l.closed.Store(true)
	return Close(l.f)
}

// Accept waits for the next connection. After Close the error is net.ErrClosed.
func (l *Listener) Accept() (*net.TCPConn, error) {
	var c *net.TCPConn
	var failed error
	raw, err := l.f.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			for {
				Do(func() { c, failed = accept(int(fd)) })
				switch {
				case errors.Is(failed, syscall.EAGAIN):
					return false
				case errors.Is(failed, syscall.EINTR), errors.Is(failed, syscall.ECONNABORTED):
					continue
				}
				return true
			}
		})
	}
	switch {
	case err != nil && l.closed.Load():
		return nil, net.ErrClosed
	case err != nil:
		return nil, err
	}
	return c, failed
}

func accept(ln int) (*net.TCPConn, error) {
	fd, _, err := syscall.Accept4(ln, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("accept4", err)
	}
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close() // the connection has a descriptor of its own
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if c.RemoteAddr() == nil || c.LocalAddr() == nil { // reset since: the kernel no longer knows the addresses
		_ = c.Close()
		return nil, syscall.ECONNABORTED
	}
	t := c.(*net.TCPConn)
	MarkConn(t)
	return t, nil
}

// MarkConn marks the descriptor of a connection or listener.
func MarkConn(c syscall.Conn) { withFD(c, Mark) }

// ClearConn clears it.
func ClearConn(c syscall.Conn) { withFD(c, Clear) }

// Close clears the mark of a connection or file and closes it. It may be called again.
func Close(c interface {
	syscall.Conn
	io.Closer
}) (err error) {
	Do(func() {
		ClearConn(c)
		err = c.Close()
	})
	return err
}

func withFD(c syscall.Conn, f func(int)) {
	if rc, err := c.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { f(int(fd)) }) // fails only on a closed socket, which is not marked
	}
}
