package forkfd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A Dialer opens TCP connections from one place.
type Dialer struct {
	Addr   netip.Addr // own address; the zero value is the kernel's choice
	Netdev string     // own interface; "" is the kernel's choice
	Ports  PortRange  // own ports
}

// errTaken wraps the error of a port that another socket has.
type errTaken struct{ error }

func (e errTaken) Unwrap() error { return e.error }

// Dial opens a marked connection, in Go's poller. It does by hand what net.Dialer
// does, which gives no chance to clear the mark of a socket that fails to connect
// before it is closed. When the context ends first the error is its cause.
//
// A port of a range is one that no other socket of this host has at the address. When
// there is none left, sockets that lead to different places share one.
func (d Dialer) Dial(ctx context.Context, to netip.AddrPort) (*os.File, error) {
	offset := turn.Add(1)
	var taken errTaken
	for _, share := range []bool{false, true} {
		if share && !d.shares() {
			break
		}
		for port := range d.Ports.from(offset) {
			f, err := d.dial(ctx, to, port, share)
			if !errors.As(err, &taken) {
				return f, err
			}
		}
	}
	return nil, d.Ports.usedUp(taken.error)
}

// shares reports whether another socket may have the same port. The kernel does not see that a socket which is bound to
// an interface, and one that is not, lead from one port to the same place: the other end does, and resets the first.
// Lanes, which are bound to an address too, lead to ports of lanes, where only lanes lead.
func (d Dialer) shares() bool {
	return d.Ports != PortRange{} && (d.Netdev == "" || d.Addr.IsValid())
}

// dial opens a connection from one port; 0 is the kernel's choice.
func (d Dialer) dial(ctx context.Context, to netip.AddrPort, port uint16, share bool) (*os.File, error) {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	var fd int
	var err error
	Do(func() {
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err == nil {
			Mark(fd)
		}
	})
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "tcp")
	if err := d.connect(ctx, f, fd, to, port, share); err != nil {
		_ = Close(f)
		return nil, err
	}
	return f, nil
}

// Conn takes a marked TCP socket over, into Go's poller. On an error it is closed.
func Conn(f *os.File) (*net.TCPConn, error) {
	defer func() { _ = Close(f) }() // the connection has a descriptor of its own
	var conn *net.TCPConn
	var err error
	Do(func() {
		var c net.Conn
		if c, err = net.FileConn(f); err == nil {
			conn = c.(*net.TCPConn)
			MarkConn(conn)
		}
	})
	if err != nil {
		return nil, err
	}
	if conn.LocalAddr() == nil || conn.RemoteAddr() == nil { // reset since: the kernel no longer knows the addresses
		_ = Close(conn)
		return nil, os.NewSyscallError("connect", unix.ECONNRESET)
	}
	return conn, nil
}

func (d Dialer) connect(ctx context.Context, f *os.File, fd int, to netip.AddrPort, port uint16, share bool) error {
	if err := BindToDevice(fd, d.Netdev); err != nil {
		return err
	}
	if err := d.bind(fd, to, port, share); err != nil {
		return err
	}
	err := unix.Connect(fd, sockaddr(to))
	if share && err == unix.EADDRNOTAVAIL { // another socket leads from this port to the same place
		return errTaken{os.NewSyscallError("connect", err)}
	}
	if err == unix.EINPROGRESS || err == unix.EINTR {
		err = connected(ctx, f)
	}
	if err == nil {
		err = notItself(fd)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return os.NewSyscallError("connect", err)
}

// notItself fails when nobody listens on an ephemeral port of this host, and the
// kernel chose the same one for this end.
func notItself(fd int) error {
	self, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	other, err := unix.Getpeername(fd)
	if err == nil && SockaddrPort(self) == SockaddrPort(other) {
		err = unix.ECONNREFUSED
	}
	return err
}

// connected waits until a connection attempt has succeeded or failed, or the
// context has ended.
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
	return errors.Join(err, result)
}

// BindToDevice ties a socket to an interface, so that addresses which several
// interfaces answer for cannot lead its packets elsewhere. Old kernels want
// privileges for that; routing by the address has to do then.
func BindToDevice(fd int, netdev string) error {
	if netdev == "" {
		return nil
	}
	err := unix.BindToDevice(fd, netdev)
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind to interface %s: %w", netdev, err)
	}
	return nil
}

// bind gives a socket its address and its port, where either is not left to connect.
func (d Dialer) bind(fd int, to netip.AddrPort, port uint16, share bool) error {
	if port == 0 {
		if !d.Addr.IsValid() {
			return nil
		}
		if err := bindToAddr(fd, d.Addr); err != nil {
			return fmt.Errorf("bind to %v: %w", d.Addr, err)
		}
		return nil
	}
	from := netip.AddrPortFrom(d.Addr, port)
	if !d.Addr.IsValid() {
		from = netip.AddrPortFrom(netip.IPv6Unspecified(), port)
		if to.Addr().Unmap().Is4() {
			from = netip.AddrPortFrom(netip.IPv4Unspecified(), port)
		}
	}
	reuse := func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }
	var err error
	if share {
		err = reuse()
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(from))
	}
	if err == nil && !share && d.shares() { // the option counts when all sockets of a port have it
		err = reuse()
	}
	switch {
	case err == nil:
		return nil
	case err == unix.EADDRINUSE:
		return errTaken{fmt.Errorf("bind to %v: %w", from, err)}
	}
	return fmt.Errorf("bind to %v: %w", from, err)
}

// bindToAddr gives a socket its address, and a port that nobody else on this host
// has there. Were the port left to connect, a socket that is not bound to an
// interface could get the same one for the same listener, as the kernel tells them
// apart by the interface; the listener's end cannot, and the first is reset. Only
// when all ports are taken may they be shared.
func bindToAddr(fd int, addr netip.Addr) error {
	at := sockaddr(netip.AddrPortFrom(addr, 0))
	err := unix.Bind(fd, at)
	if err == unix.EADDRINUSE {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		err = unix.Bind(fd, at)
	}
	return err
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

// SockaddrPort is the address and port of a TCP socket as the kernel gives them; zero of
// any other.
func SockaddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
