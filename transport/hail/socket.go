package hail

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/limit"
)

// socket is one for UDP on one interface. It is marked while it is open, for forked children to close.
type socket struct {
	f   *os.File // non-blocking, in Go's poller
	at  place
	six bool
}

// option is one of a socket.
type option struct {
	name       string
	level, opt int
	value      int
}

// options are those of every socket: what it sends goes out with the highest hop limit and does not come back to this
// node, what it receives says how it has come, and nothing is received for a group that another socket has joined.
func (p place) options(six bool) []option {
	if six {
		return []option{
			{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{"IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0},
			{"IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0},
			{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255},
			{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255},
			{"IPV6_MULTICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, p.index},
			{"IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
			{"IPV6_RECVHOPLIMIT", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
		}
	}
	return []option{
		{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0},
		{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0},
		{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255},
		{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, 255},
		{"IP_PKTINFO", unix.IPPROTO_IP, unix.IP_PKTINFO, 1},
		{"IP_RECVTTL", unix.IPPROTO_IP, unix.IP_RECVTTL, 1},
	}
}

// open makes a socket on a place's interface; prepare does the rest.
func open(at place, six bool, prepare func(fd int) error) (*socket, error) {
	domain := unix.AF_INET
	if six {
		domain = unix.AF_INET6
	}
	var fd int
	var err error
	forkfd.Do(func() {
		if fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP); err == nil {
			forkfd.Mark(fd)
		}
	})
	if err != nil {
		return nil, limit.Own(os.NewSyscallError("socket", err))
	}
	s := &socket{f: os.NewFile(uintptr(fd), "udp"), at: at, six: six}
	if err = forkfd.BindToDevice(fd, at.Netdev); err == nil {
		err = at.set(fd, six)
	}
	if err == nil {
		err = prepare(fd)
	}
	if err != nil {
		s.close()
		return nil, limit.Own(err)
	}
	return s, nil
}

func (p place) set(fd int, six bool) error {
	for _, o := range p.options(six) {
		err := unix.SetsockoptInt(fd, o.level, o.opt, o.value)
		if o.opt == unix.IPV6_MULTICAST_ALL && err == unix.ENOPROTOOPT {
			continue // an older kernel; what the socket is bound to does as well
		}
		if err != nil {
			return os.NewSyscallError("setsockopt "+o.name, err)
		}
	}
	if six {
		return nil
	}
	return os.NewSyscallError("setsockopt IP_MULTICAST_IF", unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(p.index)}))
}

// group is what questions are sent to.
func group(six bool) netip.Addr {
	if six {
		return group6
	}
	return group4
}

// openEar makes a socket that hears the questions on an interface; other processes of the node may have the like.
func openEar(at place, six bool, port uint16) (*socket, error) {
	return open(at, six, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return os.NewSyscallError("setsockopt SO_REUSEADDR", err)
		}
		if err := unix.Bind(fd, at.sockaddr(netip.AddrPortFrom(group(six), port))); err != nil {
			return os.NewSyscallError("bind", err)
		}
		var err error
		if six {
			err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group6.As16(), Interface: uint32(at.index)})
		} else {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group4.As4(), Ifindex: int32(at.index)})
		}
		return os.NewSyscallError("join the group", err)
	})
}

// openMouth makes a socket to ask from, and to hear the answers; for IPv4 at an address of the interface.
func openMouth(at place, six bool, source netip.Addr, ports forkfd.PortRange) (*socket, error) {
	if six {
		source = netip.IPv6Unspecified()
	}
	return open(at, six, func(fd int) error {
		return ports.Bind(func(port uint16) error {
			return os.NewSyscallError("bind", unix.Bind(fd, at.sockaddr(netip.AddrPortFrom(source, port))))
		})
	})
}

func (s *socket) close() { _ = forkfd.Close(s.f) }

// sockaddr is an address on the place's link.
func (p place) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: uint32(p.index)}
}

// send sends a datagram out of the interface, over IPv4 from a source. It does not wait.
func (s *socket) send(b []byte, to netip.AddrPort, source netip.Addr) error {
	var how []byte
	if s.six {
		how = unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: uint32(s.at.index)}) // the kernel takes a link-local address of it
	} else {
		how = unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(s.at.index), Spec_dst: source.As4()})
	}
	rc, err := s.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if rc.Control(func(fd uintptr) { failed = unix.Sendmsg(int(fd), b, how, s.at.sockaddr(to), unix.MSG_DONTWAIT) }) != nil {
		return os.ErrClosed // it fails on no other file, with an error that is not that
	}
	return os.NewSyscallError("sendmsg", failed)
}

// datagram is one that came, and how.
type datagram struct {
	bytes []byte // until the next one
	cut   bool   // there were more
	from  netip.AddrPort
	to    netip.Addr
	index int // of the interface
	hops  int // its hop limit at the end

	room [handshake.MaxHailSize]byte
	how  [256]byte
}

// receive waits for the next datagram.
func (s *socket) receive(d *datagram) error {
	rc, err := s.f.SyscallConn()
	if err != nil {
		return err
	}
	var n, how, flags int
	var from unix.Sockaddr
	var failed error
	err = rc.Read(func(fd uintptr) bool {
		for {
			n, how, flags, from, failed = unix.Recvmsg(int(fd), d.room[:], d.how[:], 0)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	if err := errors.Join(err, os.NewSyscallError("recvmsg", failed)); err != nil {
		return err
	}
	d.bytes, d.cut = d.room[:n], flags&unix.MSG_TRUNC != 0
	d.from = forkfd.SockaddrPort(from)
	d.to, d.index, d.hops = netip.Addr{}, 0, 0
	d.read(d.how[:how])
	return nil
}

// read takes apart what the kernel says of a datagram.
func (d *datagram) read(how []byte) {
	for len(how) > 0 {
		head, data, rest, err := unix.ParseOneSocketControlMessage(how)
		if err != nil {
			return
		}
		how = rest
		switch {
		case head.Level == unix.IPPROTO_IP && head.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			d.index = int(int32(binary.NativeEndian.Uint32(data)))
			d.to = netip.AddrFrom4([4]byte(data[8:12]))
		case head.Level == unix.IPPROTO_IPV6 && head.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			d.to = netip.AddrFrom16([16]byte(data[:16]))
			d.index = int(int32(binary.NativeEndian.Uint32(data[16:])))
		case head.Level == unix.IPPROTO_IP && head.Type == unix.IP_TTL && len(data) >= 4,
			head.Level == unix.IPPROTO_IPV6 && head.Type == unix.IPV6_HOPLIMIT && len(data) >= 4:
			d.hops = int(int32(binary.NativeEndian.Uint32(data)))
		}
	}
}
