package sock

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// packets is a socket of the kernel's for UDP on one interface.
type packets struct {
	*socket
	on    Interface
	six   bool
	local netip.AddrPort
}

var _ Packets = (*packets)(nil)

// option is one of a socket.
type option struct {
	name       string
	level, opt int
	value      int
}

// options are those of every socket: what it sends goes out with the highest hop limit and does not come back to this
// node, what it receives says how it has come, and nothing is received for a group that another socket has joined.
func (s *packets) options() []option {
	if s.six {
		return []option{
			{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{"IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0},
			{"IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0},
			{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit},
			{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit},
			{"IPV6_MULTICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, s.on.Index},
			{"IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
			{"IPV6_RECVHOPLIMIT", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
		}
	}
	return []option{
		{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0},
		{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0},
		{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit},
		{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, hopLimit},
		{"IP_PKTINFO", unix.IPPROTO_IP, unix.IP_PKTINFO, 1},
		{"IP_RECVTTL", unix.IPPROTO_IP, unix.IP_RECVTTL, 1},
	}
}

// newPackets makes a socket on an interface; prepare does the rest.
func newPackets(on Interface, six bool, prepare func(s *packets, fd int) error) (Packets, error) {
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	udp, err := open(family, unix.SOCK_DGRAM, unix.IPPROTO_UDP, "udp")
	if err != nil {
		return nil, err
	}
	s := &packets{socket: udp, on: on, six: six}
	err = s.control(func(fd int) error {
		if err := bindToDevice(fd, on.Name); err != nil {
			return err
		}
		if err := s.set(fd); err != nil {
			return err
		}
		if err := prepare(s, fd); err != nil {
			return err
		}
		own, err := unix.Getsockname(fd)
		s.local = plainAddrPort(own)
		return os.NewSyscallError("getsockname", err)
	})
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *packets) set(fd int) error {
	for _, o := range s.options() {
		err := unix.SetsockoptInt(fd, o.level, o.opt, o.value)
		if o.opt == unix.IPV6_MULTICAST_ALL && err == unix.ENOPROTOOPT {
			continue // an older kernel; what the socket is bound to does as well
		}
		if err != nil {
			return os.NewSyscallError("setsockopt "+o.name, err)
		}
	}
	if s.six {
		return nil
	}
	return os.NewSyscallError("setsockopt IP_MULTICAST_IF", unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(s.on.Index)}))
}

// Hear opens a socket that receives the datagrams of a group; other processes of the node may have the like.
func (Kernel) Hear(on Interface, group netip.AddrPort) (Packets, error) {
	return newPackets(on, group.Addr().Is6(), func(s *packets, fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return os.NewSyscallError("setsockopt SO_REUSEADDR", err)
		}
		if err := unix.Bind(fd, s.sockaddr(group)); err != nil {
			return os.NewSyscallError("bind", err)
		}
		var err error
		if s.six {
			err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.Addr().As16(), Interface: uint32(on.Index)})
		} else {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.Addr().As4(), Ifindex: int32(on.Index)})
		}
		return os.NewSyscallError("join the group", err)
	})
}

// Ask opens a socket to send from, and to receive the answers.
func (Kernel) Ask(on Interface, source netip.Addr, ports PortRange) (Packets, error) {
	six := !source.Is4()
	if six {
		source = netip.IPv6Unspecified()
	}
	return newPackets(on, six, func(s *packets, fd int) error {
		return ports.bind(turn.Add(1), func(port uint16) error {
			return os.NewSyscallError("bind", unix.Bind(fd, s.sockaddr(netip.AddrPortFrom(source, port))))
		})
	})
}

// sockaddr is an address on the interface's link.
func (s *packets) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: uint32(s.on.Index)}
}

func (s *packets) Send(b []byte, to netip.AddrPort, source netip.Addr) error {
	var how []byte
	if s.six {
		how = unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: uint32(s.on.Index)}) // the kernel takes a link-local address of it
	} else {
		how = unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(s.on.Index), Spec_dst: source.As4()})
	}
	return s.control(func(fd int) error {
		return os.NewSyscallError("sendmsg", unix.Sendmsg(fd, b, how, s.sockaddr(to), unix.MSG_DONTWAIT))
	})
}

func (s *packets) Receive(d *Datagram) error {
	var n, how, flags int
	var from unix.Sockaddr
	err := s.whenReadable(func(fd int) (err error) {
		for {
			n, how, flags, from, err = unix.Recvmsg(fd, d.Room, d.control[:], 0)
			if err != unix.EINTR {
				return err
			}
		}
	})
	if err != nil {
		return os.NewSyscallError("recvmsg", err)
	}
	d.Bytes, d.Cut = d.Room[:n], flags&unix.MSG_TRUNC != 0
	d.From = plainAddrPort(from)
	d.read(d.control[:how])
	return nil
}

func (s *packets) Local() netip.AddrPort { return s.local }

// plainAddrPort is an address and port as the kernel gives them, without a zone: it would take a look-up, and the interface is
// known.
func plainAddrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// read takes apart what the kernel says of a datagram.
func (d *Datagram) read(how []byte) {
	d.To, d.Index, d.Hops = netip.Addr{}, 0, 0
	for len(how) > 0 {
		head, data, rest, err := unix.ParseOneSocketControlMessage(how)
		if err != nil {
			return
		}
		how = rest
		switch {
		case head.Level == unix.IPPROTO_IP && head.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			d.Index = int(int32(binary.NativeEndian.Uint32(data)))
			d.To = netip.AddrFrom4([4]byte(data[8:12]))
		case head.Level == unix.IPPROTO_IPV6 && head.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			d.To = netip.AddrFrom16([16]byte(data[:16]))
			d.Index = int(int32(binary.NativeEndian.Uint32(data[16:])))
		case head.Level == unix.IPPROTO_IP && head.Type == unix.IP_TTL && len(data) >= 4,
			head.Level == unix.IPPROTO_IPV6 && head.Type == unix.IPV6_HOPLIMIT && len(data) >= 4:
			d.Hops = int(int32(binary.NativeEndian.Uint32(data)))
		}
	}
}

// Interfaces lists the interfaces of this network namespace.
func (Kernel) Interfaces() ([]Interface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []Interface
	for _, i := range interfaces {
		all = append(all, Interface{i.Name, i.Index, i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0})
	}
	return all, nil
}

// Prefixes lists the addresses of an interface.
func (Kernel) Prefixes(index int) (all []netip.Prefix) {
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return nil
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all
}
