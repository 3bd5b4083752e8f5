package internet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// A call is an attempt to open a stream.
type call struct {
	process *Process
	from    sock.From
	to      netip.AddrPort
	end     *end
	fd      int
	err     error
	done    bool // it has failed, or the end has called
}

// Dial opens a stream. It begins at the next event of the stream's own source.
func (p *Process) Dial(ctx context.Context, from sock.From, to netip.AddrPort) (sock.Conn, error) {
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	from.Addr = from.Addr.Unmap()
	place := "to " + to.String()
	if from.Addr.IsValid() {
		place = from.Addr.WithZone("").String() + " " + place
	}
	if from.Netdev != "" {
		place = from.Netdev + " " + place
	}
	turn := p.turn(place)
	name := fmt.Sprintf("%v %s #%d", p, place, turn)
	source := n.bus.Source(name)
	e := p.host.newEnd(name, source)
	e.dialled = true
	c := &call{process: p, from: from, to: to, end: e, fd: -1}
	turn += uint32(source.Uint64() >> 40)
	if from.Ports != (sock.PortRange{}) {
		turn = p.turn("ports " + from.Ports.String())
	}
	n.after(source, 0, name, func() { c.begin(turn) })
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		e.writable.Broadcast()
	})
	defer stop()
	for (!c.done || c.err == nil && e.state == stateCalling) && ctx.Err() == nil && !p.dead {
		p.wait(e.writable)
	}
	return c.outcome(ctx)
}

// outcome returns what came of a call that is over.
func (c *call) outcome(ctx context.Context) (sock.Conn, error) {
	e, p := c.end, c.process
	switch {
	case c.err != nil:
		return nil, c.err
	case c.done && e.errno != 0:
		c.err = os.NewSyscallError("connect", e.takeError())
	case c.done && e.state == stateOpen:
		return newConn(e, p, c.fd), nil
	case p.dead:
		c.err = os.NewSyscallError("connect", unix.EBADF)
	case c.done && e.state != stateCalling: // it stood, and has broken or ended since
		return newConn(e, p, c.fd), nil
	default:
		c.err = context.Cause(ctx)
	}
	c.done = true
	if c.fd >= 0 && !p.dead {
		p.shut(c.fd)
		e.release()
	}
	return nil, c.err
}

// begin opens the socket and calls.
// Preconditions: n.mu is locked; an event of the bus runs.
func (c *call) begin(turn uint32) {
	defer c.end.writable.Broadcast()
	if c.done || c.process.dead { // the context has ended before
		return
	}
	c.err = c.try(turn)
	c.done = true
	if c.err != nil && c.fd >= 0 {
		c.process.shut(c.fd)
		c.fd = -1
	}
}

func (c *call) try(turn uint32) error {
	p, e := c.process, c.end
	var errno unix.Errno
	if c.fd, errno = p.open("socket", "stream"); errno != 0 {
		return os.NewSyscallError("socket", errno)
	}
	on, err := p.interfaceOf(c.from.Netdev)
	if err != nil {
		return err
	}
	e.on = on
	if c.from.OnLink {
		e.hops = 255
	}
	if err := c.bind(turn); err != nil {
		return err
	}
	if errno := p.refused("connect"); errno != 0 {
		e.binding.giveBack(p.host.ports)
		return os.NewSyscallError("connect", errno)
	}
	e.state = stateCalling
	e.register()
	e.given(p)
	e.calls()
	return nil
}

// bind finds the way, and gives the end its address and its port.
func (c *call) bind(turn uint32) error {
	p, e, from := c.process, c.end, c.from
	h := p.host
	if from.Addr.IsValid() || from.Ports != (sock.PortRange{}) {
		at := from.Addr
		if errno := p.refused("bind"); errno != 0 {
			return fmt.Errorf("bind to %v: %w", at, errno)
		}
		if at.IsValid() && h.owner(at) == nil {
			return fmt.Errorf("bind to %v: %w", at, unix.EADDRNOTAVAIL)
		}
		if zone := at.Zone(); zone != "" && e.on == nil {
			e.on = h.named(zone)
		}
	}
	if zone := c.to.Addr().Zone(); zone != "" {
		on := h.named(zone)
		if on == nil || e.on != nil && e.on != on {
			return os.NewSyscallError("connect", unix.EINVAL)
		}
		e.on = on
	}
	r, errno := h.route(from.Addr, c.to.Addr(), e.on)
	if errno != 0 {
		return os.NewSyscallError("connect", errno)
	}
	local := from.Addr
	if !local.IsValid() {
		local = r.src
	}
	if local.IsLinkLocalUnicast() && local.Is6() {
		zone := e.on
		if zone == nil {
			zone = r.out
		}
		local = local.WithZone(zone.name)
	}
	e.remote = c.to
	if e.remote.Addr().IsLinkLocalUnicast() && e.remote.Addr().Is6() && e.on != nil {
		e.remote = netip.AddrPortFrom(e.remote.Addr().WithZone(e.on.name), e.remote.Port())
	}
	return c.takePort(local, turn)
}

// errShared is what connect says of a port that leads to the same place already.
var errShared = os.NewSyscallError("connect", unix.EADDRNOTAVAIL)

// takePort finds a port, by the rules of package sock's kernel: one for the stream alone; of a range that is used up, one
// that leads to other places.
func (c *call) takePort(local netip.Addr, turn uint32) error {
	h, e, from := c.process.host, c.end, c.from
	bound := from.Addr.IsValid() || from.Ports != (sock.PortRange{})
	shares := from.Ports != (sock.PortRange{}) && (from.Netdev == "" || from.Addr.IsValid())
	addr := local
	if bound && !from.Addr.IsValid() {
		addr = netip.IPv4Unspecified()
		if local.Is6() {
			addr = netip.IPv6Unspecified()
		}
	}
	var last error
	for _, share := range []bool{false, true} {
		if share && !shares && (from.Ports != (sock.PortRange{}) || !bound) {
			break
		}
		errno := search(from.Ports, turn, func(port uint16) unix.Errno {
			b := &binding{port: port, addr: addr, on: e.on, reuse: share && shares, chosen: !bound || share && !shares}
			at := netip.AddrPortFrom(local, port)
			last = fmt.Errorf("bind to %v: %w", netip.AddrPortFrom(addr, port), unix.EADDRINUSE)
			switch {
			case at == e.remote, b.chosen && h.boundTo(port), !b.chosen && b.taken(h.ports):
				return unix.EADDRINUSE
			case len(h.pairs[pair{bare(at), bare(e.remote)}]) > 0:
				last = errShared
				return unix.EADDRINUSE
			}
			b.reuse = shares
			b.take(h.ports)
			e.binding, e.local = b, at
			return 0
		})
		if errno == 0 {
			return nil
		}
	}
	if !bound {
		return errShared
	}
	if errors.Is(last, unix.EADDRNOTAVAIL) && !shares {
		return last
	}
	return usedUp(from.Ports, last)
}

// boundTo reports whether a socket was given a port, rather than chosen one by connecting.
func (h *Host) boundTo(port uint16) bool {
	for _, b := range h.ports[port] {
		if !b.chosen {
			return true
		}
	}
	return false
}

// calls sends the call, and repeats it until it is answered.
func (e *end) calls() {
	if e.state != stateCalling {
		return
	}
	_ = e.emit(&segment{syn: true}) // where there is no way any more it is sent again
	pause := time.Second << e.tries
	if e.tries++; e.tries > callTries {
		e.resend.set(e, pause, "calls in vain", e.timedOut)
		return
	}
	e.resend.set(e, pause, "calls again", e.calls)
}
