package sock

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

// Kernel is the network of the machine.
type Kernel struct{}

var _ Network = Kernel{}

// errTaken wraps the error of a port that another socket has.
type errTaken struct{ error }

func (e errTaken) Unwrap() error { return e.error }

// Dial opens a connection. A port of a range is one that no other socket of this host has at the address. When there is
// none left, sockets that lead to different places share one.
func (Kernel) Dial(ctx context.Context, from From, to netip.AddrPort) (Conn, error) {
	offset := turn.Add(1)
	var taken errTaken
	for _, share := range []bool{false, true} {
		if share && !from.shares() {
			break
		}
		for port := range from.Ports.from(offset) {
			c, err := from.dial(ctx, to, port, share)
			if err == nil {
				return c, nil
			}
			if !errors.As(err, &taken) {
				return nil, err
			}
		}
	}
	return nil, from.Ports.usedUp(taken.error)
}

// shares reports whether another socket may have the same port. The kernel does not see that a socket which is bound to
// an interface, and one that is not, lead from one port to the same place: the other end does, and resets the first.
// Lanes, which are bound to an address too, lead to ports of lanes, where only lanes lead.
func (d From) shares() bool {
	return d.Ports != PortRange{} && (d.Netdev == "" || d.Addr.IsValid())
}

// dial opens a connection from one port; 0 is the kernel's choice. It does by hand what net.Dialer does, which gives no
// chance to clear the mark of a socket that fails to connect before it is closed.
func (d From) dial(ctx context.Context, to netip.AddrPort, port uint16, share bool) (*conn, error) {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	s, err := open(family, unix.SOCK_STREAM, unix.IPPROTO_TCP, "tcp")
	if err != nil {
		return nil, err
	}
	var c *conn
	err = s.control(func(fd int) error { return d.begin(fd, to, port, share) })
	if err == unix.EINPROGRESS || err == unix.EINTR {
		err = os.NewSyscallError("connect", connected(ctx, s))
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		c, err = newConn(s)
	}
	if err == nil && c.local == c.remote { // nobody listens on an ephemeral port of this host, and the kernel chose the same one for this end
		err = os.NewSyscallError("connect", unix.ECONNREFUSED)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return c, nil
}

// begin begins to connect. It returns EINPROGRESS or EINTR, bare, while the attempt goes on.
func (d From) begin(fd int, to netip.AddrPort, port uint16, share bool) error {
	if err := bindToDevice(fd, d.Netdev); err != nil {
		return err
	}
	if err := d.bind(fd, to, port, share); err != nil {
		return err
	}
	if d.OnLink {
		if err := stayOnLink(fd, to.Addr(), false); err != nil {
			return err
		}
	}
	switch err := unix.Connect(fd, sockaddr(to)); {
	case err == unix.EINPROGRESS || err == unix.EINTR:
		return err
	case share && err == unix.EADDRNOTAVAIL: // another socket leads from this port to the same place
		return errTaken{os.NewSyscallError("connect", err)}
	default:
		return os.NewSyscallError("connect", err)
	}
}

// connected waits until a connection attempt has succeeded or failed, or the context has ended.
func connected(ctx context.Context, s *socket) error {
	stop := context.AfterFunc(ctx, func() { _ = s.f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	return s.whenWritable(func(fd int) error {
		errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return err
		}
		if errno != 0 {
			return unix.Errno(errno)
		}
		if _, err = unix.Getpeername(fd); err == unix.ENOTCONN {
			return unix.EAGAIN
		}
		return err
	})
}

// bindToDevice ties a socket to an interface, so that addresses which several
// interfaces answer for cannot lead its packets elsewhere. Old kernels want
// privileges for that; routing by the address has to do then.
func bindToDevice(fd int, netdev string) error {
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
func (d From) bind(fd int, to netip.AddrPort, port uint16, share bool) error {
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

// addrPort is an address and port as the kernel gives them; zero of any other kind of socket. A link-local address has its
// zone.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		addr := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.ZoneId != 0 && addr.Is6() {
			addr = addr.WithZone(zoneName(sa.ZoneId))
		}
		return netip.AddrPortFrom(addr, uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// zoneName is the name of an interface, or its index when it is gone.
func zoneName(index uint32) string {
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		return i.Name
	}
	return strconv.FormatUint(uint64(index), 10)
}
