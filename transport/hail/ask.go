package hail

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/sock"
)

// round is one series of queries. Only the goroutine of run uses its fields, except done.
type asking struct {
	done    chan struct{}
	begun   bool
	left    int // queries that are still to be sent
	asked   int
	changes uint64 // value of Discovery.changes when the round began
	mouths  map[mouthKey]*mouth
}

type mouthKey struct {
	place
	six bool
}

func (k mouthKey) compare(other mouthKey) int {
	switch c := comparePlaces(k.place, other.place); {
	case c != 0 || k.six == other.six:
		return c
	case other.six:
		return -1
	}
	return 1
}

// querySocket sends queries on one interface, and receives the replies.
type mouth struct {
	*socket
	source  netip.Addr // source address of IPv4 queries
	nonce   handshake.HailNonce
	raw     []byte // the encoded query
	changes uint64 // value of Discovery.changes before the socket was opened
}

// run is the goroutine that opens and closes sockets and sends queries.
func (h *Hailer) keep() {
	next := h.cfg.Clock.NewTimer(time.Hour)
	next.Stop()
	defer next.Stop()
	var a *asking
	defer func() {
		h.closeDoors(func(place) bool { return true })
		h.mu.Lock()
		h.closed = true // also if this goroutine ends because of a panic
		a, h.asking = h.asking, nil
		h.mu.Unlock()
		if a != nil {
			a.hush()
			close(a.done)
		}
	}()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.wake:
			h.mu.Lock()
			changed := h.changed
			h.changed, a = false, h.asking
			changes := h.changes
			h.mu.Unlock()
			if changed && a != nil {
				a.hush()
				a.begun, a.left, a.asked = false, questions, 0
			}
			if changed || a != nil && !a.begun {
				h.listen()
			}
			if a != nil && !a.begun {
				a.begun, a.changes = true, changes
				next.Reset(0)
			}
		case <-next.C:
			if h.ask(a) {
				next.Reset(h.scaled(askEvery))
			}
		}
	}
}

// stop closes the query sockets of a round.
func (a *asking) hush() {
	for _, k := range slices.SortedFunc(maps.Keys(a.mouths), mouthKey.compare) {
		a.mouths[k].close()
	}
	a.mouths = nil
}

// query sends one query on every interface. It returns false when the round is over.
func (h *Hailer) ask(a *asking) bool {
	_, places := h.places()
	all := h.heardAt(places)
	if a.left == 0 || a.asked >= fewest && all {
		return !h.over(a, all)
	}
	a.left, a.asked = a.left-1, a.asked+1
	for _, at := range places {
		for _, six := range []bool{true, false} {
			if m := h.mouth(a, mouthKey{at, six}); m == nil {
				continue
			} else if err := m.packets.Send(m.raw, netip.AddrPortFrom(group(six), UDPPort), m.source); err != nil {
				h.mute(at, err)
			} else {
				h.count.add(func(s *Stats) { s.Asked++ })
			}
		}
	}
	return true
}

// finish ends a round and reports true, unless the ports have changed since run last looked at them.
func (h *Hailer) over(a *asking, all bool) bool {
	h.mu.Lock()
	over := !h.changed
	if over {
		h.asking, h.full, h.all, h.ended = nil, true, all, time.Now()
	}
	h.mu.Unlock()
	if over {
		a.hush()
		close(a.done)
	}
	return over
}

// answeredAll reports whether a neighbour has answered on each of the interfaces. It is false if there are no
// interfaces.
func (h *Hailer) heardAt(places []place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range places {
		if c := h.known[at.Index]; c == nil || len(c.processes) == 0 && !c.crowd {
			return false
		}
	}
	return len(places) > 0
}

// querySocketOn returns the query socket of a round for an interface and address family. It opens one if needed, and
// returns nil if it cannot.
func (h *Hailer) mouth(a *asking, k mouthKey) *mouth {
	if m := a.mouths[k]; m != nil {
		return m
	}
	m := &mouth{nonce: handshake.NewHailNonce(h.cfg.Random), changes: a.changes}
	if !k.six {
		if m.source = h.source(k.place, netip.Addr{}); !m.source.IsValid() {
			return nil
		}
	}
	var err error
	m.raw, err = handshake.SealHail(h.secret, &handshake.Hail{Nonce: m.nonce, Process: h.cfg.Process, Node: h.cfg.Node, Port: k.Index, Name: k.Netdev})
	if err == nil {
		m.socket, err = h.openMouth(k.place, k.six, m.source)
	}
	if err != nil {
		if k.six {
			h.log.Debug("neighbour discovery: cannot send queries over IPv6", "interface", k.Netdev, "error", err)
		} else {
			h.mute(k.place, err)
		}
		return nil
	}
	if a.mouths == nil {
		a.mouths = make(map[mouthKey]*mouth)
	}
	a.mouths[k] = m
	h.wg.Go(func() { guard.Run(func() { h.each(m.socket, func(d *sock.Datagram) { h.told(m, d) }) }, h.caught) })
	return m
}

// handleReply handles a datagram that arrived at a query socket.
func (h *Hailer) told(m *mouth, d *sock.Datagram) {
	answer, reason, err := h.judge(m, d)
	fresh := false
	if answer != nil {
		fresh, reason = h.heard(m, answer, d.From.Addr())
	}
	switch {
	case reason != "":
		h.refuse(m.at, d.From, reason, err)
	case answer == nil:
		h.count.add(func(s *Stats) { s.Own++ })
	default:
		h.count.add(func(s *Stats) { s.Heard++ })
	}
	if fresh && h.cfg.Heard != nil {
		h.cfg.Heard()
	}
}

// parseReply returns the reply in a datagram, or the reason for refusing it. Both are empty for a reply of this node.
func (h *Hailer) judge(m *mouth, d *sock.Datagram) (answer *handshake.HailAnswer, reason string, err error) {
	if reason := m.at.arrived(d); reason != "" {
		return nil, reason, nil
	}
	if m.six && (!d.To.IsLinkLocalUnicast() || !d.From.Addr().IsLinkLocalUnicast()) || !m.six && d.To != m.source {
		return nil, reasonGroup, nil
	}
	said, err := handshake.OpenHailAnswer(h.secret, d.Bytes)
	switch {
	case err != nil:
		return nil, explain(err), err
	case said.Nonce != m.nonce:
		return nil, reasonNonce, nil
	case h.own(said.Node, said.Process):
		return nil, "", nil
	}
	return &said, "", nil
}

// record adds the sender of a reply to the neighbours. fresh reports whether it was not known on this interface before.
func (h *Hailer) heard(m *mouth, said *handshake.HailAnswer, from netip.Addr) (fresh bool, reason string) {
	at := m.at
	if from.Is6() {
		from = from.WithZone(at.Netdev)
	}
	n := Neighbour{
		Port: at.Index, Name: at.Netdev, Process: said.Process, Node: said.Node, Dedicated: said.Dedicated,
		PeerPort: said.Port, PeerName: said.Name, Control: netip.AddrPortFrom(from, said.Control),
	}
	fresh, crowd, reason := h.enter(m.changes, n)
	if crowd && h.count.first(at.Netdev, "crowd") {
		h.log.Warn("neighbour discovery: more nodes answer on this interface than a cable has ends: it leads to a switch, and is not used for relaying", "interface", at.Netdev, "nodes", maxNodes+1)
	}
	if fresh {
		h.log.Debug("neighbour discovery: found a neighbour", "interface", at.Netdev, "process", n.Process, "node", n.Node, "interface there", n.PeerName, "control", n.Control)
	}
	return fresh, reason
}

// add adds a neighbour, unless it is known, the ports have changed since the query, or the port has too many
// neighbours. tooMany reports that this neighbour exceeded the number of nodes.
func (h *Hailer) enter(changes uint64, n Neighbour) (fresh, crowd bool, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.changes != changes {
		return false, false, ""
	}
	c := h.known[n.Port]
	if c == nil {
		c = &cable{processes: make(map[handshake.ProcessID]*Neighbour), nodes: make(map[handshake.NodeID]int)}
		h.known[n.Port] = c
	}
	if c.crowd {
		return false, false, ""
	}
	if old := c.processes[n.Process]; old != nil {
		if old.Node == n.Node && old.Control.Addr().Is4() && n.Control.Addr().Is6() {
			old.Control = n.Control // an IPv4 address may be reachable over several cables; a link-local IPv6 address belongs to one
		}
		return false, false, ""
	}
	if c.nodes[n.Node] >= maxProcesses {
		return false, false, reasonMany
	}
	if c.nodes[n.Node] == 0 && len(c.nodes) >= maxNodes {
		c.crowd, c.processes, c.nodes = true, nil, nil
		return false, true, ""
	}
	c.processes[n.Process] = &n
	c.nodes[n.Node]++
	return true, false, ""
}
