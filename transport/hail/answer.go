package hail

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
type door struct {
	ears     [2]*socket // for IPv4 and IPv6; nil if the socket of that family is not open
	answered fair
}

// openListeners opens listeners on all existing interfaces of ports, and closes all others. Only New and the goroutine
// of run call it.
func (h *Hailer) listen() {
	all, _ := h.places()
	stand := make(map[place]bool)
	for _, at := range all {
		stand[at] = true
		d := h.doors[at]
		if d == nil {
			d = &door{}
			h.doors[at] = d
		}
		for i, six := range []bool{false, true} {
			if d.ears[i] != nil {
				continue
			}
			s, err := h.openEar(at, six)
			if err != nil {
				h.deaf(at, six, err)
				continue
			}
			d.ears[i] = s
			h.wg.Go(func() { guard.Run(func() { h.hear(d, s) }, h.caught) })
		}
	}
	h.closeDoors(func(at place) bool { return !stand[at] })
}

// closeListeners closes the listeners on the interfaces for which the function returns true, ordered by interface.
func (h *Hailer) closeDoors(which func(place) bool) {
	for _, at := range slices.SortedFunc(maps.Keys(h.doors), comparePlaces) {
		if which(at) {
			h.doors[at].close()
			delete(h.doors, at)
		}
	}
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.Index, b.Index))
}

func (d *door) close() {
	for _, s := range d.ears {
		if s != nil {
			s.close()
		}
	}
}

// logListenFailed logs why this process cannot receive queries on an interface. An error that is normal for an
// interface without that address family is logged at level Debug.
func (h *Hailer) deaf(at place, six bool, err error) {
	what := "not listening for IPv4"
	if six {
		what = "not listening for IPv6"
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		if h.count.first(at.Netdev, "taken") {
			h.log.Warn("neighbour discovery: another program has this UDP port to itself: other nodes do not find this one over the interface, and no traffic is relayed there; stop that program",
				"port", UDPPort, "interface", at.Netdev)
		}
	case limit.IsOwn(err):
		if h.count.first(at.Netdev, what) {
			h.log.Warn("neighbour discovery: other nodes do not find this one over an interface", "interface", at.Netdev, "error", err)
		}
	default:
		h.log.Debug("neighbour discovery: "+what, "interface", at.Netdev, "error", err)
	}
}

// receive calls f for each datagram that arrives at a socket, until the socket is closed. Above the rate limit it
// pauses briefly and repeatedly. During a pause the kernel drops datagrams when the socket's buffer is full, so that
// the dropped ones are spread over the second.
func (h *Hailer) each(s *socket, f func(*sock.Datagram)) {
	d := newDatagram()
	allowed := rate.NewLimiter(maxHeard, maxBurst)
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
			pause = askEvery
		}
		if pause > 0 && !h.cfg.Clock.Pause(h.ctx, pause) {
			return
		}
	}
}

// serve answers the queries that arrive at a receive socket, until the socket is closed.
func (h *Hailer) hear(d *door, ear *socket) {
	h.each(ear, func(q *sock.Datagram) {
		nonce, reason, err := h.question(ear, q)
		if reason == "" && nonce != nil && !d.answered.allow(time.Now(), q.From) {
			reason = reasonFlood
		}
		switch {
		case reason != "":
			h.refuse(ear.at, q.From, reason, err)
		case nonce == nil:
			h.count.add(func(s *Stats) { s.Own++ })
		default:
			to := q.From
			h.wg.Go(func() { guard.Run(func() { h.answer(ear, to, *nonce) }, h.caught) })
		}
	})
}

// check returns the reason for refusing a datagram that cannot come from a neighbour on this interface, or "". It does
// not look at the contents.
func (at place) arrived(d *sock.Datagram) (reason string) {
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
func (h *Hailer) question(ear *socket, d *sock.Datagram) (nonce *handshake.HailNonce, reason string, err error) {
	if reason := ear.at.arrived(d); reason != "" {
		return nil, reason, nil
	}
	if d.To != group(ear.six) {
		return nil, reasonGroup, nil
	}
	m, err := handshake.OpenHail(h.secret, d.Bytes)
	if err != nil {
		return nil, explain(err), err
	}
	if h.own(m.Node, m.Process) {
		return nil, "", nil
	}
	return &m.Nonce, "", nil
}

// own reports whether this process or another process of this node sent a message. Such messages arrive, for example,
// through a second function of the same adapter.
func (h *Hailer) own(n handshake.NodeID, p handshake.ProcessID) bool {
	return n == h.cfg.Node || p == h.cfg.Process
}

// answer waits a random time of at most answerWait and sends a reply to an address.
func (h *Hailer) answer(ear *socket, to netip.AddrPort, nonce handshake.HailNonce) {
	if !h.cfg.Clock.Pause(h.ctx, random.N(h.cfg.Random.For(to), answerWait, "wait before an answer")) {
		return
	}
	raw, err := handshake.SealHailAnswer(h.secret, &handshake.HailAnswer{
		Nonce: nonce, Process: h.cfg.Process, Node: h.cfg.Node, Control: h.cfg.ControlPort,
		Port: ear.at.Index, Name: ear.at.Netdev, Dedicated: h.cfg.Dedicated,
	})
	var source netip.Addr
	if err == nil && !ear.six {
		if source = h.source(ear.at, to.Addr()); !source.IsValid() {
			err = unix.EADDRNOTAVAIL
		}
	}
	if err == nil {
		err = ear.packets.Send(raw, to, source)
	}
	if err != nil {
		h.mute(ear.at, err)
		return
	}
	h.count.add(func(s *Stats) { s.Answered++ })
}

// logSendFailed logs why a datagram could not be sent, except if the interface is down or has no address.
func (h *Hailer) mute(at place, err error) {
	for _, e := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENXIO, unix.EAGAIN, net.ErrClosed} {
		if errors.Is(err, e) {
			return
		}
	}
	if h.count.first(at.Netdev, "mute") {
		hint := ""
		if errors.Is(err, unix.EPERM) {
			hint = ": a firewall on this node blocks it"
		}
		h.log.Warn("neighbour discovery: cannot send queries or answers on an interface"+hint, "interface", at.Netdev, "UDP port", UDPPort, "error", err)
	}
}
