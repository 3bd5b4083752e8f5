package internet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/sock"
)

// packets is a socket for datagrams on one interface. It is guarded by the internet's mutex, but for what never changes.
type packets struct {
	process *Process
	name    string
	source  *bus.Source
	on      *Interface
	six     bool
	group   bool // it hears what is sent to a group, to which it is bound
	binding *binding
	fd      int
	closed  bool
	queue   []datagram
	bytes   int // in the queue
	come    *sync.Cond
}

var _ sock.Packets = (*packets)(nil)

// datagram is one on its way, or in a queue.
type datagram struct {
	b        []byte
	from, to netip.AddrPort
	hops     int
	index    int
}

// A queue of datagrams has room for so many bytes, where each takes more than it has: net.core.rmem_default.
const (
	datagramRoom = 212_992
	datagramCost = 768
)

// Hear opens a socket that receives the datagrams that are sent to a group.
func (p *Process) Hear(on sock.Interface, group netip.AddrPort) (sock.Packets, error) {
	return p.openPackets(on, "hears "+group.String(), group.Addr().Is6(), func(s *packets) error {
		s.group = true
		s.binding = &binding{port: group.Port(), addr: group.Addr(), on: s.on, reuse: true}
		if errno := p.refused("bind"); errno != 0 {
			return os.NewSyscallError("bind", errno)
		}
		if s.binding.taken(p.host.udp) {
			return os.NewSyscallError("bind", unix.EADDRINUSE)
		}
		if s.on.down && s.six {
			return os.NewSyscallError("join the group", unix.ENODEV)
		}
		return nil
	})
}

// Ask opens a socket to send from, and to receive the answers.
func (p *Process) Ask(on sock.Interface, source netip.Addr, ports sock.PortRange) (sock.Packets, error) {
	six := !source.Is4()
	what := fmt.Sprintf("asks from %v", source)
	if six {
		what = "asks over IPv6"
	}
	return p.openPackets(on, what, six, func(s *packets) error {
		addr := source
		if six {
			addr = netip.IPv6Unspecified()
		} else if !source.IsUnspecified() && p.host.owner(source) == nil {
			return os.NewSyscallError("bind", unix.EADDRNOTAVAIL)
		}
		errno := p.refused("bind")
		if errno == 0 {
			errno = search(ports, uint32(s.source.Uint64()>>40), func(port uint16) unix.Errno {
				s.binding = &binding{port: port, addr: addr, on: s.on}
				if s.binding.taken(p.host.udp) {
					return unix.EADDRINUSE
				}
				return 0
			})
		}
		err := os.NewSyscallError("bind", errno)
		if errno == 0 {
			return nil
		}
		if errno == unix.EADDRINUSE {
			return usedUp(ports, err)
		}
		return err
	})
}

// openPackets makes a socket on an interface; prepare finds its binding.
func (p *Process) openPackets(on sock.Interface, what string, six bool, prepare func(s *packets) error) (sock.Packets, error) {
	h := p.host
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	place := on.Name + " " + what
	s := &packets{process: p, six: six, name: fmt.Sprintf("%v %s #%d", p, place, p.turn(place)), come: h.net.newCond()}
	s.source = h.net.bus.Source(s.name)
	var errno unix.Errno
	if s.fd, errno = p.open("socket", "datagrams"); errno != 0 {
		return nil, os.NewSyscallError("socket", errno)
	}
	err := func() (err error) {
		if s.on, err = p.interfaceOf(on.Name); err != nil {
			return err
		}
		if s.on == nil || s.on.index != on.Index {
			return os.NewSyscallError("setsockopt IP_MULTICAST_IF", unix.ENODEV)
		}
		return prepare(s)
	}()
	if err != nil {
		p.shut(s.fd)
		return nil, err
	}
	s.binding.take(h.udp)
	h.packets, p.packets = append(h.packets, s), append(p.packets, s)
	return s, nil
}

// Send sends a datagram at the next event of the socket's own source.
func (s *packets) Send(b []byte, to netip.AddrPort, source netip.Addr) error {
	n := s.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if errno := s.send(slices.Clone(b), bare(to), source); errno != 0 {
		return os.NewSyscallError("sendmsg", errno)
	}
	return nil
}

func (s *packets) send(b []byte, to netip.AddrPort, source netip.Addr) unix.Errno {
	p := s.process
	h := p.host
	if errno := p.refused("sendmsg"); errno != 0 {
		return errno
	}
	if s.on.down {
		return unix.ENETUNREACH
	}
	if s.six {
		source = s.on.nearest(to.Addr())
		if to.Addr().IsMulticast() {
			source = s.on.linkLocal
		}
	} else if h.owner(source) == nil {
		return unix.ENETUNREACH
	}
	var way route
	if !to.Addr().IsMulticast() {
		var errno unix.Errno
		if way, errno = h.route(source, to.Addr(), s.on); errno != 0 {
			return errno
		}
	}
	d := datagram{b: b, from: netip.AddrPortFrom(source, s.binding.port), to: to, hops: 255}
	what := fmt.Sprintf("%s: %d bytes to %v", s.name, len(b), to.Addr())
	k := &packet{kind: kindDatagram, what: what, size: len(b), src: source, dst: to.Addr(), hops: d.hops, source: s.source}
	k.land = func(at *Interface, hops int) {
		came := d // for it may come to several hosts
		came.hops = hops
		at.host.deliver(came, at, at.host == h && way.at != nil)
	}
	h.net.after(s.source, 0, what, func() {
		switch {
		case to.Addr().IsMulticast():
			s.on.line.send(k, nil, nil)
		case way.at != nil:
			h.interfaces[0].line.send(k, nil, way.at)
		default:
			s.on.resolve(k)
		}
	})
	return 0
}

// deliver hands a datagram to the sockets that it is for: of a group all, else the first.
// Preconditions: n.mu is locked; an event of the bus runs.
func (h *Host) deliver(d datagram, at *Interface, local bool) {
	switch {
	case !local && d.from.Addr().Is4() && h.owner(d.from.Addr()) != nil:
		h.net.count("datagram from an address of this host")
		return
	case !d.to.Addr().IsMulticast() && h.owner(d.to.Addr()) == nil:
		h.net.count("datagram for an address that is gone")
		return
	}
	d.index = at.index
	for _, s := range h.packets {
		if s.on != at || s.binding.port != d.to.Port() || s.group != d.to.Addr().IsMulticast() || !s.binding.covers(d.to.Addr()) {
			continue
		}
		s.take(d)
		if !s.group {
			return
		}
	}
}

// take puts a datagram into the socket's queue, if it has room.
func (s *packets) take(d datagram) {
	if s.bytes+len(d.b)+datagramCost > datagramRoom {
		s.process.host.net.count("no room for a datagram")
		return
	}
	s.bytes += len(d.b) + datagramCost
	s.queue = append(s.queue, d)
	s.come.Broadcast()
	s.process.tell()
}

// Receive waits for the next datagram.
func (s *packets) Receive(d *sock.Datagram) error {
	n := s.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if s.closed {
			return net.ErrClosed
		}
		if errno := s.process.refused("recvmsg"); errno != 0 {
			return os.NewSyscallError("recvmsg", errno)
		}
		if len(s.queue) > 0 {
			break
		}
		s.process.wait(s.come)
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	s.bytes -= len(next.b) + datagramCost
	k := copy(d.Room, next.b)
	d.Bytes, d.Cut = d.Room[:k], k < len(next.b)
	d.From, d.To, d.Index, d.Hops = next.from, next.to.Addr(), next.index, next.hops
	return nil
}

// Local is the address and port that the socket is bound to.
func (s *packets) Local() netip.AddrPort { return netip.AddrPortFrom(s.binding.addr, s.binding.port) }

// Close ends the socket, and a Receive that waits.
func (s *packets) Close() error {
	n := s.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.close()
	return nil
}

// close is Close.
// Preconditions: n.mu is locked.
func (s *packets) close() {
	h, p := s.process.host, s.process
	s.closed = true
	p.shut(s.fd)
	s.binding.giveBack(h.udp)
	gone := func(o *packets) bool { return o == s }
	h.packets, p.packets = slices.DeleteFunc(h.packets, gone), slices.DeleteFunc(p.packets, gone)
	s.come.Broadcast()
}
