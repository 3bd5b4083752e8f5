package discovery

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// listener receives queries on one interface.
type listener struct {
	sockets [2]*socket // for IPv4 and IPv6; nil if the socket of that family is not open
	replies rateLimit
}

// openListeners opens listeners on all existing interfaces of ports, and closes all others. Only New and the goroutine
// of run call it.
func (disc *Discovery) openListeners() {
	all, _ := disc.ifaces()
	present := make(map[iface]bool)
	for _, at := range all {
		present[at] = true
		d := disc.listeners[at]
		if d == nil {
			d = &listener{}
			disc.listeners[at] = d
		}
		for i, six := range []bool{false, true} {
			if d.sockets[i] != nil {
				continue
			}
			s, err := disc.openReceive(at, six)
			if err != nil {
				disc.logListenFailed(at, six, err)
				continue
			}
			d.sockets[i] = s
			disc.wg.Go(func() { guard.Run(func() { disc.serve(d, s) }, disc.caught) })
		}
	}
	disc.closeListeners(func(at iface) bool { return !present[at] })
}

// closeListeners closes the listeners on the interfaces for which the function returns true, ordered by interface.
func (disc *Discovery) closeListeners(which func(iface) bool) {
	for _, at := range slices.SortedFunc(maps.Keys(disc.listeners), compareIfaces) {
		if which(at) {
			disc.listeners[at].close()
			delete(disc.listeners, at)
		}
	}
}

func compareIfaces(a, b iface) int {
	return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.Index, b.Index))
}

func (d *listener) close() {
	for _, s := range d.sockets {
		if s != nil {
			s.close()
		}
	}
}

// logListenFailed logs why this process cannot receive queries on an interface. An error that is normal for an
// interface without that address family is logged at level Debug.
func (disc *Discovery) logListenFailed(at iface, six bool, err error) {
	what := "not listening for IPv4"
	if six {
		what = "not listening for IPv6"
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		if disc.count.first(at.Netdev, "port in use") {
			disc.log.Warn("neighbour discovery: another program has this UDP port to itself: other nodes do not find this one over the interface, and no traffic is relayed there; stop that program",
				"port", UDPPort, "interface", at.Netdev)
		}
	case limit.IsOwn(err):
		if disc.count.first(at.Netdev, what) {
			disc.log.Warn("neighbour discovery: other nodes do not find this one over an interface", "interface", at.Netdev, "error", err)
		}
	default:
		disc.log.Debug("neighbour discovery: "+what, "interface", at.Netdev, "error", err)
	}
}

// receive calls f for each datagram that arrives at a socket, until the socket is closed. Above the rate limit it
// pauses briefly and repeatedly. During a pause the kernel drops datagrams when the socket's buffer is full, so that
// the dropped ones are spread over the second.
func (disc *Discovery) receive(s *socket, f func(*sock.Datagram)) {
	d := newDatagram()
	allowed := rate.NewLimiter(maxRate, maxBurst)
	for {
		err := s.packets.Receive(d)
		pause := allowed.Reserve().Delay()
		if pause < minPause {
			pause = 0
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			f(d)
		default:
			pause = queryInterval
		}
		if pause > 0 && !disc.cfg.Clock.Pause(disc.ctx, pause) {
			return
		}
	}
}

// serve answers the queries that arrive at a receive socket, until the socket is closed.
func (disc *Discovery) serve(d *listener, recv *socket) {
	disc.receive(recv, func(q *sock.Datagram) {
		nonce, reason, err := disc.parseQuery(recv, q)
		if reason == "" && nonce != nil && !d.replies.allow(time.Now(), q.From) {
			reason = reasonFlood
		}
		switch {
		case reason != "":
			disc.refuse(recv.at, q.From, reason, err)
		case nonce == nil:
			disc.count.add(func(s *Stats) { s.Own++ })
		default:
			to := q.From
			disc.wg.Go(func() { guard.Run(func() { disc.answer(recv, to, *nonce) }, disc.caught) })
		}
	})
}

// check returns the reason for refusing a datagram that cannot come from a neighbour on this interface, or "". It does
// not look at the contents.
func (at iface) check(d *sock.Datagram) (reason string) {
	switch {
	case d.Index != at.index:
		return reasonPort
	case d.Hops != 255:
		return reasonHops
	case d.Cut:
		return reasonMalformed
	}
	return ""
}

// parseQuery returns the nonce to repeat in the reply if the datagram is a valid query of another node, or the reason
// for refusing it. Both are empty for a query of this node.
func (disc *Discovery) parseQuery(recv *socket, d *sock.Datagram) (nonce *handshake.NeighbourNonce, reason string, err error) {
	if reason := recv.at.check(d); reason != "" {
		return nil, reason, nil
	}
	if d.To != group(recv.six) {
		return nil, reasonGroup, nil
	}
	m, err := handshake.OpenNeighbourQuery(disc.secret, d.Bytes)
	if err != nil {
		return nil, explain(err), err
	}
	if disc.own(m.Node, m.Process) {
		return nil, "", nil
	}
	return &m.Nonce, "", nil
}

// own reports whether this process or another process of this node sent a message. Such messages arrive, for example,
// through a second function of the same adapter.
func (disc *Discovery) own(n handshake.NodeID, p handshake.ProcessID) bool {
	return n == disc.cfg.Node || p == disc.cfg.Process
}

// answer waits a random time of at most maxReplyDelay and sends a reply to an address.
func (disc *Discovery) answer(recv *socket, to netip.AddrPort, nonce handshake.NeighbourNonce) {
	if !disc.cfg.Clock.Pause(disc.ctx, random.N(disc.cfg.Random.For(to), maxReplyDelay, "wait before an answer")) {
		return
	}
	raw, err := handshake.SealNeighbourReply(disc.secret, &handshake.NeighbourReply{
		Nonce: nonce, Process: disc.cfg.Process, Node: disc.cfg.Node, Control: disc.cfg.ControlPort,
		Port: recv.at.Index, Name: recv.at.Netdev, Dedicated: disc.cfg.Dedicated,
	})
	var source netip.Addr
	if err == nil && !recv.six {
		if source = disc.source(recv.at, to.Addr()); !source.IsValid() {
			err = unix.EADDRNOTAVAIL
		}
	}
	if err == nil {
		err = recv.packets.Send(raw, to, source)
	}
	if err != nil {
		disc.logSendFailed(recv.at, err)
		return
	}
	disc.count.add(func(s *Stats) { s.Answered++ })
}

// logSendFailed logs why a datagram could not be sent, except if the interface is down or has no address.
func (disc *Discovery) logSendFailed(at iface, err error) {
	for _, e := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENXIO, unix.EAGAIN, net.ErrClosed} {
		if errors.Is(err, e) {
			return
		}
	}
	if disc.count.first(at.Netdev, "send failed") {
		hint := ""
		if errors.Is(err, unix.EPERM) {
			hint = ": a firewall on this node blocks it"
		}
		disc.log.Warn("neighbour discovery: cannot send queries or answers on an interface"+hint, "interface", at.Netdev, "UDP port", UDPPort, "error", err)
	}
}
