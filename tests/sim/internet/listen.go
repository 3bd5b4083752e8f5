package internet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// A listener is a socket that takes calls. It is guarded by the internet's mutex, but for what never changes.
type listener struct {
	process *Process
	name    string
	binding *binding
	addr    netip.AddrPort
	on      *Interface
	fd      int
	closed  bool
	most    int    // ends that may wait to be accepted
	queue   []*end // that wait
	half    []*end // whose callers have not answered
	come    *sync.Cond
}

var _ sock.Listener = (*listener)(nil)

// backlog is how many streams may wait at a listener: net.core.somaxconn.
const backlog = 4096

// Listen opens a listener.
func (p *Process) Listen(at netip.AddrPort, netdev string, ports sock.PortRange) (sock.Listener, error) {
	h := p.host
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	l, err := p.listen(at, netdev, ports)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (p *Process) listen(at netip.AddrPort, netdev string, ports sock.PortRange) (*listener, error) {
	h := p.host
	place := "listener at " + at.String()
	if netdev != "" {
		place = netdev + " " + place
	}
	l := &listener{process: p, name: fmt.Sprintf("%v %s #%d", p, place, p.turn(place)), most: backlog, come: h.net.newCond()}
	source := h.net.bus.Source(l.name)
	var errno unix.Errno
	if l.fd, errno = p.open("socket", "listener"); errno != 0 {
		return nil, fmt.Errorf("listen at %v: %w", at, os.NewSyscallError("socket", errno))
	}
	err := l.bind(at, netdev, ports, uint32(source.Uint64()>>40))
	if err != nil {
		p.shut(l.fd)
		return nil, err
	}
	p.listeners = append(p.listeners, l)
	h.listeners = append(h.listeners, l)
	return l, nil
}

// bind gives the listener its port: the first of a range that is free, or any.
func (l *listener) bind(at netip.AddrPort, netdev string, ports sock.PortRange, turn uint32) (err error) {
	p := l.process
	h := p.host
	if l.on, err = p.interfaceOf(netdev); err != nil {
		return fmt.Errorf("listen at %v: %w", at, err)
	}
	addr := at.Addr()
	own := addr
	switch {
	case !addr.IsValid() || addr == netip.IPv6Unspecified():
		addr, own = netip.Addr{}, netip.IPv6Unspecified()
	case addr.IsUnspecified():
	default:
		if zone := addr.Zone(); zone != "" && l.on == nil {
			l.on = h.named(zone)
		}
		if h.owner(addr) == nil {
			return fmt.Errorf("listen at %v: %w", at, os.NewSyscallError("bind", unix.EADDRNOTAVAIL))
		}
	}
	range_ := ports
	switch {
	case at.Port() != 0:
		range_ = sock.PortRange{First: at.Port(), Last: at.Port()}
	case ports != (sock.PortRange{}):
		turn = 0
	}
	last := at.Port()
	errno := p.refused("bind")
	if errno == 0 {
		errno = search(range_, turn, func(port uint16) unix.Errno {
			last = port
			b := &binding{port: port, addr: addr, on: l.on, reuse: true, listening: true}
			if b.taken(h.ports) {
				return unix.EADDRINUSE
			}
			b.take(h.ports)
			l.binding, l.addr = b, netip.AddrPortFrom(own, port)
			return 0
		})
	}
	if errno == 0 {
		if errno = p.refused("listen"); errno == 0 {
			return nil
		}
		l.binding.giveBack(h.ports)
		return fmt.Errorf("listen at %v: %w", l.addr, os.NewSyscallError("listen", errno))
	}
	err = fmt.Errorf("listen at %v: %w", netip.AddrPortFrom(at.Addr(), last), os.NewSyscallError("bind", errno))
	if errno == unix.EADDRINUSE && at.Port() == 0 {
		return usedUp(ports, err)
	}
	return err
}

// listenerAt finds the listener that a call to an address comes to: the most particular.
func (h *Host) listenerAt(to netip.AddrPort, at *Interface) (best *listener) {
	score := 0
	for _, l := range h.listeners {
		if l.binding.port != to.Port() || !l.binding.covers(to.Addr()) || l.on != nil && l.on != at {
			continue
		}
		s := 1
		if l.on != nil {
			s += 4
		}
		if l.binding.addr.IsValid() {
			s++
			if !l.binding.addr.IsUnspecified() {
				s += 2
			}
		}
		if s > score {
			best, score = l, s
		}
	}
	return best
}

// called answers a call, unless so many wait that it is not heard.
func (l *listener) called(s *segment, at *Interface) {
	h := l.process.host
	if len(l.queue) >= l.most {
		h.net.count("accept queue full")
		return
	}
	s.sender.answers++
	name := fmt.Sprintf("%s answer %d", s.sender.name, s.sender.answers)
	e := h.newEnd(name, h.net.bus.Source(name))
	e.peer, e.window, e.listener, e.on = s.sender, s.limit, l, l.on
	e.local, e.remote = s.to, s.from
	if s.from.Addr().Is6() && s.from.Addr().IsLinkLocalUnicast() {
		e.on = at
		e.remote = netip.AddrPortFrom(s.from.Addr().WithZone(at.name), s.from.Port())
	}
	if s.to.Addr().Is6() && s.to.Addr().IsLinkLocalUnicast() {
		e.local = netip.AddrPortFrom(s.to.Addr().WithZone(at.name), s.to.Port())
	}
	e.binding = &binding{port: s.to.Port(), addr: s.to.Addr(), on: e.on, reuse: true}
	e.binding.take(h.ports)
	e.state = stateAnswering
	e.register()
	l.half = append(l.half, e)
	e.answersAgain()
}

// answersAgain sends the answer to a call, and repeats it until the caller has heard.
func (e *end) answersAgain() {
	if e.state != stateAnswering {
		return
	}
	_ = e.emit(&segment{syn: true, ack: true})
	pause := time.Second << e.tries
	if e.tries++; e.tries > answerTries {
		e.resend.set(e, pause, "answers in vain", e.forget)
		return
	}
	e.resend.set(e, pause, "answers again", e.answersAgain)
}

// ready lets an end whose caller has heard the answer wait to be accepted, if there is room.
func (l *listener) ready(e *end) bool {
	if len(l.queue) >= l.most {
		l.process.host.net.count("accept queue full")
		return false
	}
	l.half = slices.DeleteFunc(l.half, func(o *end) bool { return o == e })
	l.queue = append(l.queue, e)
	e.state = stateOpen
	if e.tries == 1 {
		e.measure(e.now() - e.began)
	}
	e.opened()
	l.come.Broadcast()
	l.process.tell()
	return true
}

// drop takes an end off the listener's lists.
func (l *listener) drop(e *end) {
	gone := func(o *end) bool { return o == e }
	l.half, l.queue = slices.DeleteFunc(l.half, gone), slices.DeleteFunc(l.queue, gone)
	e.listener = nil
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

// Accept waits for the next stream. A process that may have no more descriptors hears so at once.
func (l *listener) Accept() (sock.Conn, error) {
	p := l.process
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if l.closed {
			return nil, net.ErrClosed
		}
		fd, errno := p.open("accept4", "stream")
		if errno != 0 {
			return nil, os.NewSyscallError("accept4", errno)
		}
		if len(l.queue) > 0 {
			e := l.queue[0]
			l.drop(e)
			e.given(p)
			return newConn(e, p, fd), nil
		}
		p.shut(fd)
		p.wait(l.come)
	}
}

// Close ends the listener. Streams that wait to be accepted are reset.
func (l *listener) Close() error {
	n := l.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.close(false)
	return nil
}

// close is Close; without power nothing is sent.
// Preconditions: n.mu is locked.
func (l *listener) close(unpowered bool) {
	h, p := l.process.host, l.process
	l.closed = true
	p.shut(l.fd)
	l.binding.giveBack(h.ports)
	gone := func(o *listener) bool { return o == l }
	h.listeners, p.listeners = slices.DeleteFunc(h.listeners, gone), slices.DeleteFunc(p.listeners, gone)
	for _, e := range slices.Concat(l.half, l.queue) {
		waits := e.state == stateOpen
		l.drop(e)
		if unpowered || !waits {
			e.forget()
			continue
		}
		e.owned, e.abort = true, true
		e.wantStep()
	}
	l.come.Broadcast()
}

// LimitQueue says how many streams may wait at the listeners that the process has now.
func (p *Process) LimitQueue(most int) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	for _, l := range p.listeners {
		l.most = most
	}
}
