package transport

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/control"
	"ncclmesh/transport/topology"
)

// Values of Options.Transport.
const (
	TransportAuto = "auto" // RDMA between two nodes where it works, else TCP
	TransportRDMA = "rdma" // RDMA only
	TransportTCP  = "tcp"  // TCP only
)

// openPlain adds the network interfaces as ports for TCP, after those of RDMA.
func (t *Transport) openPlain(n *topology.Node) error {
	usable := t.opts.LaneIfs.Select(n.Plain)
	if !t.opts.Interfaces.Named() { // what is excluded from one is from both
		usable = slices.DeleteFunc(usable, func(p topology.Port) bool { return !t.opts.Interfaces.Match(p.Netdev) })
	}
	wired := slices.DeleteFunc(slices.Clone(usable), func(p topology.Port) bool { return t.wireless(p.Netdev) })
	if len(wired) > 0 {
		usable = wired
	}
	for _, p := range usable[:min(len(usable), handshake.MaxPorts-len(t.ports))] {
		o := &port{Port: p, index: uint8(len(t.ports))}
		if _, err := o.see(p); err != nil {
			return err
		}
		t.ports = append(t.ports, o)
	}
	return nil
}

// wireless reports whether an interface is a radio: no cable of a mesh, and its
// speed is anybody's guess.
func (t *Transport) wireless(netdev string) bool {
	_, err := os.Stat(filepath.Join(t.opts.Sysfs, "class/net", netdev, "phy80211"))
	return err == nil
}

// plain reports whether the port is a network interface, which carries sockets
// and no queue pairs.
func (p *port) plain() bool { return p.ctx == nil }

// carries is the kind of lane that the port can have.
func (p *port) carries() uint8 {
	if p.plain() {
		return handshake.LaneTCP
	}
	return handshake.LaneVerbs
}

// candidates are the pairs of ports that may reach a peer, in groups: those for
// queue pairs; those for sockets; those for sockets over the network that is
// named for setting connections up, which is not the mesh unless there is no
// other. A group counts when nothing in those before it works.
func (t *Transport) candidates(ports []topology.Port, peer []handshake.Port) (groups [3][]topology.Candidate) {
	control := func(p topology.Port) bool {
		return t.opts.Interfaces.Named() && !t.opts.LaneIfs.Named() && t.opts.Interfaces.Match(p.Netdev)
	}
	for _, c := range topology.Candidates(ports, peer, t.opts.GIDs) {
		g := 0
		if t.ports[c.Local].plain() {
			if g = 1; control(ports[c.Local]) {
				g = 2
			}
		}
		groups[g] = append(groups[g], c)
	}
	// A slow network beside the cables would only hold their messages up.
	speed := func(c topology.Candidate) int { return min(ports[c.Local].Mbps(), int(peer[c.Remote].SpeedMbps)) }
	fastest := 0
	for _, c := range groups[1] {
		fastest = max(fastest, speed(c))
	}
	groups[1] = slices.DeleteFunc(groups[1], func(c topology.Candidate) bool { return speed(c) < fastest/4 })
	return groups
}

// streams is how many lanes a connection has on a path: one processor moves about
// 10 Gb/s through a socket without effort, and more streams use more of them.
func (t *Transport) streams(p path) int {
	if !p.port.plain() {
		return t.opts.QPsPerLane
	}
	if t.opts.TCPStreams > 0 {
		return t.opts.TCPStreams
	}
	switch mbps := min(p.port.Mbps(), int(p.peer.SpeedMbps)); {
	case mbps <= 10000:
		return 1
	case mbps <= 25000:
		return 2
	}
	return 4
}

// buildSockets creates the sockets of the planned lanes, and the grant ring.
func (c *conn) buildSockets(plan []plannedLane) error {
	var err error
	if c.mem, err = ibv.Alloc(wireSize + 3*64 + len(plan)*(socketMemorySize+64)); err != nil {
		return err
	}
	c.wire, c.wireBase = carveWire(c.mem)
	for _, p := range plan {
		l := c.newLane(p)
		k, err := newSocket(l, p.gid)
		if err != nil {
			return fmt.Errorf("%v: %s: %w", c, p.port.String(), err)
		}
		l.carrier = k
		c.mu.Lock()
		c.lanes = append(c.lanes, l)
		c.sockets = append(c.sockets, k)
		c.mu.Unlock()
	}
	return nil
}

// offer reports whether any of the ports that a peer is told of can carry a kind
// of lane.
func offer(ports []handshake.Port, kind uint8) bool {
	return slices.ContainsFunc(ports, func(p handshake.Port) bool { return (p.Device == "") == (kind == handshake.LaneTCP) })
}

// sayWhyTCP tells the user, once for each peer, that TCP is used although RDMA
// might have been.
func (t *Transport) sayWhyTCP(s *control.Session, why error, tried []string) {
	peer := s.Name()
	here := slices.DeleteFunc(t.topologyPorts(), func(p topology.Port) bool { return p.Device == "" })
	if len(here) == 0 {
		return
	}
	reason := "no two RDMA ports of theirs share a subnet"
	switch {
	case len(tried) > 0:
		reason = firstTried(tried) // find lists them all
	case why != nil:
		reason = oneLine(why)
	case !offer(t.portsOf(s), handshake.LaneVerbs):
		reason = peer + " offers no RDMA port; its log says why"
	}
	t.warnOnceAbout("TCP to "+peer, fmt.Sprintf("%s and %s talk over TCP, slower than RDMA, although %s has %s: %s",
		s.LocalName(), peer, s.LocalName(), portNames(here), reason))
}

// firstTried is what was tried, in a line: on a large mesh it is a great deal.
func firstTried(tried []string) string {
	if len(tried) == 1 {
		return "tried " + tried[0]
	}
	return fmt.Sprintf("tried %s; and %d more ways, which NCCL_MESH_DEBUG=debug lists", tried[0], len(tried)-1)
}
