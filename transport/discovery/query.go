package discovery

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
type round struct {
	done    chan struct{}
	begun   bool
	left    int  // queries that are still to be sent
	looks   bool // none is sent if a neighbour has answered on every interface with a carrier
	asked   int
	changes uint64 // value of Discovery.changes when the round began
	sockets map[queryKey]*querySocket
}

type queryKey struct {
	iface
	six bool
}

func (k queryKey) compare(other queryKey) int {
	switch c := compareIfaces(k.iface, other.iface); {
	case c != 0 || k.six == other.six:
		return c
	case other.six:
		return -1
	}
	return 1
}

// querySocket sends queries on one interface, and receives the replies.
type querySocket struct {
	*socket
	source  netip.Addr // source address of IPv4 queries
	nonce   handshake.NeighbourNonce
	raw     []byte // the encoded query
	changes uint64 // value of Discovery.changes before the socket was opened
}

// run is the goroutine that opens and closes sockets and sends queries.
func (disc *Discovery) run() {
	next := disc.cfg.Clock.NewTimer(time.Hour)
	next.Stop()
	defer next.Stop()
	var r *round
	defer func() {
		disc.closeListeners(func(iface) bool { return true })
		disc.mu.Lock()
		disc.closed = true // also if this goroutine ends because of a panic
		r, disc.round = disc.round, nil
		disc.mu.Unlock()
		if r != nil {
			r.stop()
			close(r.done)
		}
	}()
	for {
		select {
		case <-disc.ctx.Done():
			return
		case <-disc.wake:
			disc.mu.Lock()
			changed := disc.changed
			disc.changed, r = false, disc.round
			changes := disc.changes
			disc.mu.Unlock()
			if changed && r != nil {
				r.stop()
				r.begun, r.left, r.asked, r.looks = false, maxQueries, 0, false
			}
			if changed || r != nil && !r.begun {
				disc.openListeners()
			}
			if r != nil && !r.begun {
				r.begun, r.changes = true, changes
				next.Reset(0)
			}
		case <-next.C:
			if disc.query(r) {
				next.Reset(disc.cfg.Clock.Scaled(queryInterval))
			}
		}
	}
}

// stop closes the query sockets of a round.
func (r *round) stop() {
	for _, k := range slices.SortedFunc(maps.Keys(r.sockets), queryKey.compare) {
		r.sockets[k].close()
	}
	r.sockets = nil
}

// query sends one query on every interface. It returns false when the round is over.
func (disc *Discovery) query(r *round) bool {
	present, running := disc.ifaces()
	all := disc.answeredAll(running)
	if r.left == 0 || (r.looks || r.asked >= minQueries) && all {
		return !disc.finish(r, all, len(running) < len(present))
	}
	r.left, r.asked = r.left-1, r.asked+1
	for _, at := range running {
		for _, six := range []bool{true, false} {
			if m := disc.querySocketOn(r, queryKey{at, six}); m == nil {
				continue
			} else if err := m.packets.Send(m.raw, netip.AddrPortFrom(group(six), UDPPort), m.source); err != nil {
				disc.logSendFailed(at, err)
			} else {
				disc.count.add(func(s *Stats) { s.Asked++ })
			}
		}
	}
	return true
}

// finish ends a round and reports true, unless the ports have changed since run last looked at them. all says that a
// neighbour has answered on every interface with a carrier, and someDown that there are others.
func (disc *Discovery) finish(r *round, all, someDown bool) bool {
	disc.mu.Lock()
	over := !disc.changed
	if over {
		disc.round, disc.roundDone, disc.allAnswered, disc.someDown, disc.roundEnded = nil, true, all, someDown, time.Now()
	}
	disc.mu.Unlock()
	if over {
		r.stop()
		close(r.done)
	}
	return over
}

// answeredAll reports whether a neighbour has answered on each of the interfaces. It is false if there are no
// interfaces.
func (disc *Discovery) answeredAll(running []iface) bool {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	for _, at := range running {
		if c := disc.known[at.Index]; c == nil || len(c.processes) == 0 && !c.tooMany {
			return false
		}
	}
	return len(running) > 0
}

// querySocketOn returns the query socket of a round for an interface and address family. It opens one if needed, and
// returns nil if it cannot.
func (disc *Discovery) querySocketOn(r *round, k queryKey) *querySocket {
	if m := r.sockets[k]; m != nil {
		return m
	}
	m := &querySocket{nonce: handshake.NewNeighbourNonce(disc.cfg.Random), changes: r.changes}
	if !k.six {
		if m.source = disc.source(k.iface, netip.Addr{}); !m.source.IsValid() {
			return nil
		}
	}
	var err error
	m.raw, err = handshake.SealNeighbourQuery(disc.secret, &handshake.NeighbourQuery{Nonce: m.nonce, Process: disc.cfg.Process, Node: disc.cfg.Node, Port: k.Index, Name: k.Netdev})
	if err == nil {
		m.socket, err = disc.openQuery(k.iface, k.six, m.source)
	}
	if err != nil {
		if k.six {
			disc.log.Debug("neighbour discovery: cannot send queries over IPv6", "interface", k.Netdev, "error", err)
		} else {
			disc.logSendFailed(k.iface, err)
		}
		return nil
	}
	if r.sockets == nil {
		r.sockets = make(map[queryKey]*querySocket)
	}
	r.sockets[k] = m
	disc.wg.Go(func() {
		guard.Run(func() { disc.receive(m.socket, func(d *sock.Datagram) { disc.handleReply(m, d) }) }, disc.caught)
	})
	return m
}

// handleReply handles a datagram that arrived at a query socket.
func (disc *Discovery) handleReply(m *querySocket, d *sock.Datagram) {
	answer, reason, err := disc.parseReply(m, d)
	fresh := false
	if answer != nil {
		fresh, reason = disc.record(m, answer, d.From.Addr())
	}
	switch {
	case reason != "":
		disc.refuse(m.at, d.From, reason, err)
	case answer == nil:
		disc.count.add(func(s *Stats) { s.Own++ })
	default:
		disc.count.add(func(s *Stats) { s.Heard++ })
	}
	if fresh && disc.cfg.OnNeighbour != nil {
		disc.cfg.OnNeighbour()
	}
}

// parseReply returns the reply in a datagram, or the reason for refusing it. Both are empty for a reply of this node.
func (disc *Discovery) parseReply(m *querySocket, d *sock.Datagram) (answer *handshake.NeighbourReply, reason string, err error) {
	if reason := m.at.check(d); reason != "" {
		return nil, reason, nil
	}
	if m.six && (!d.To.IsLinkLocalUnicast() || !d.From.Addr().IsLinkLocalUnicast()) || !m.six && d.To != m.source {
		return nil, reasonGroup, nil
	}
	reply, err := handshake.OpenNeighbourReply(disc.secret, d.Bytes)
	switch {
	case err != nil:
		return nil, explain(err), err
	case reply.Nonce != m.nonce:
		return nil, reasonNonce, nil
	case disc.own(reply.Node, reply.Process):
		return nil, "", nil
	}
	return &reply, "", nil
}

// record adds the sender of a reply to the neighbours. fresh reports whether it was not known on this interface before.
func (disc *Discovery) record(m *querySocket, reply *handshake.NeighbourReply, from netip.Addr) (fresh bool, reason string) {
	at := m.at
	if from.Is6() {
		from = from.WithZone(at.Netdev)
	}
	n := Neighbour{
		Port: at.Index, Name: at.Netdev, Process: reply.Process, Node: reply.Node, Dedicated: reply.Dedicated,
		PeerPort: reply.Port, PeerName: reply.Name, Control: netip.AddrPortFrom(from, reply.Control),
	}
	fresh, tooMany, reason := disc.add(m.changes, n)
	if tooMany && disc.count.first(at.Netdev, "too many nodes") {
		disc.log.Warn("neighbour discovery: more nodes answer on this interface than a cable has ends: it leads to a switch, and is not used for relaying", "interface", at.Netdev, "nodes", maxNodes+1)
	}
	if fresh {
		disc.log.Debug("neighbour discovery: found a neighbour", "interface", at.Netdev, "process", n.Process, "node", n.Node, "interface there", n.PeerName, "control", n.Control)
	}
	return fresh, reason
}

// add adds a neighbour, unless it is known, the ports have changed since the query, or the port has too many
// neighbours. tooMany reports that this neighbour exceeded the number of nodes.
func (disc *Discovery) add(changes uint64, n Neighbour) (fresh, tooMany bool, reason string) {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	if disc.closed || disc.changes != changes {
		return false, false, ""
	}
	c := disc.known[n.Port]
	if c == nil {
		c = &cable{processes: make(map[handshake.ProcessID]*Neighbour), nodes: make(map[handshake.NodeID]int)}
		disc.known[n.Port] = c
	}
	if c.tooMany {
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
		c.tooMany, c.processes, c.nodes = true, nil, nil
		return false, true, ""
	}
	c.processes[n.Process] = &n
	c.nodes[n.Node]++
	return true, false, ""
}
