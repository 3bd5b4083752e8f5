package sock

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// listener is one of the kernel's. It marks what it accepts before a fork can see it, for which a net.TCPListener gives no
// chance.
type listener struct {
	*socket
	addr netip.AddrPort
}

var _ Listener = (*listener)(nil)

// Listen opens a listener.
func (Kernel) Listen(at netip.AddrPort, netdev string, ports PortRange) (Listener, error) {
	if at.Port() != 0 {
		return listen(at, netdev)
	}
	var l *listener
	err := ports.bind(0, func(port uint16) (err error) {
		l, err = listen(netip.AddrPortFrom(at.Addr(), port), netdev)
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func listen(at netip.AddrPort, netdev string) (l *listener, err error) {
	switch {
	case at.Addr().Unmap().Is4():
		l, err = listenIn(unix.AF_INET, at, netdev)
	case at.Addr().IsValid():
		l, err = listenIn(unix.AF_INET6, at, netdev)
	default: // all addresses; a kernel without IPv6 has those of IPv4
		l, err = listenIn(unix.AF_INET6, netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port()), netdev)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
			l, err = listenIn(unix.AF_INET, netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), netdev)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %v: %w", at, err)
	}
	return l, nil
}

// maxQueue is the longest queue of connections that are not accepted; the kernel cuts it to net.core.somaxconn.
const maxQueue = math.MaxUint16

func listenIn(family int, at netip.AddrPort, netdev string) (*listener, error) {
	s, err := open(family, unix.SOCK_STREAM, unix.IPPROTO_TCP, "listener")
	if err != nil {
		return nil, err
	}
	l := &listener{socket: s}
	err = s.control(func(fd int) error {
		if err := bindToDevice(fd, netdev); err != nil {
			return err
		}
		if family == unix.AF_INET6 {
			only := 1
			if at.Addr().IsUnspecified() {
				only = 0
			}
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
				return os.NewSyscallError("setsockopt IPV6_V6ONLY", err)
			}
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return os.NewSyscallError("setsockopt SO_REUSEADDR", err)
		}
		if err := unix.Bind(fd, sockaddr(at)); err != nil {
			return os.NewSyscallError("bind", err)
		}
		if err := unix.Listen(fd, maxQueue); err != nil {
			return os.NewSyscallError("listen", err)
		}
		own, err := unix.Getsockname(fd)
		l.addr = addrPort(own)
		return os.NewSyscallError("getsockname", err)
	})
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return l, nil
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

func (l *listener) Accept() (Conn, error) {
	var c *conn
	err := l.whenReadable(func(fd int) (err error) {
		for {
			forkfd.Do(func() { c, err = accept(fd) })
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return err
			}
		}
	})
	if err != nil {
		return nil, os.NewSyscallError("accept4", err)
	}
	return c, nil
}

// accept takes the next connection from the queue. The error is a bare errno; ECONNABORTED of a connection that was reset
// since.
func accept(ln int) (*conn, error) {
	fd, _, err := unix.Accept4(ln, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, err
	}
	forkfd.Mark(fd)
	s := newSocket(fd, "tcp")
	c, err := newConn(s)
	if err != nil {
		_ = s.Close()
		return nil, unix.ECONNABORTED
	}
	return c, nil
}
