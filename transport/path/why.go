package path

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// nodePair holds what decides whether there is a path between this node (here) and a peer's (there): their
// names and the ports that each has described to the other.
type nodePair struct {
	here, there  string
	ours, theirs []handshake.Port
	relays       bool // nodes are known that may become relays between them
}

func (f *Finder) nodes(s *control.Session) nodePair {
	return nodePair{s.LocalName(), s.Name(), f.Advertised(), f.PortsOf(s), f.others(s)}
}

// others reports whether a node is known that may become a relay to the session's peer.
func (f *Finder) others(s *control.Session) bool {
	return f.Overlay != nil && f.Overlay.Others(s.Peer().Node)
}

// NoPath returns the error of a search that has validated no path.
func (f *Finder) NoPath(s *control.Session, tried []conn.LaneFailure, slow string) error {
	n := f.nodes(s)
	joint, why := n.why(tried, slow, func() string { return topology.Explain(f.now(), n.theirs, f.GIDs) })
	return fmt.Errorf("%w: no path between %s and %s%s%s%s", fault.ErrUnreachable, n.here, n.there, joint, f.leftOut(s, false), why)
}

// why explains to the user why there is no path, and what to do. text follows the names of the two nodes,
// separated by joint. explain lists the addresses of both nodes.
func (n nodePair) why(tried []conn.LaneFailure, slow string, explain func() string) (joint, text string) {
	down := strings.Join(n.down(), ", ")
	if rdma, tcp, differ := n.differ(); differ {
		return ": ", fmt.Sprintf("%s offers RDMA only, as with NCCL_MESH_TRANSPORT=rdma, and %s TCP only, as with NCCL_MESH_TRANSPORT=tcp or without an RDMA device. "+
			"Set NCCL_MESH_TRANSPORT=auto on %s, or make RDMA work on %s", rdma, tcp, rdma, tcp)
	}
	switch {
	case slow != "":
		return " was validated in time; ", fmt.Sprintf("%s; %s", slow, firstTried(tried))
	case down != "" && len(tried) == 0:
		return ": ", fmt.Sprintf("these ports are down, or have no address: %s. Check their cables", down)
	case down != "":
		return ": ", fmt.Sprintf("these ports are down, or have no address: %s. Check their cables; %s", down, firstTried(tried))
	case len(tried) == 0 && n.relays:
		return ": ", "no cable joins them: no two of their ports share a subnet"
	case len(tried) == 0:
		return ": ", fmt.Sprintf("no two of their ports share a subnet: %s. Cable the two nodes, or give both ends of a cable addresses in one subnet", explain())
	case n.relays:
		return "; ", fmt.Sprintf("%s. If a cable joins the two nodes, check it, and that both ends of it have addresses in one subnet", firstTried(tried))
	}
	return "; ", fmt.Sprintf("%s. Check the cables between the two nodes, and that both ends of each have addresses in one subnet", firstTried(tried))
}

// differ reports whether the two nodes have no kind of lane in common; rdma is the name of the node that has
// queue pairs only, tcp that of the other. Ports that are down count.
func (n nodePair) differ() (rdma, tcp string, ok bool) {
	switch {
	case !has(n.ours, lane.TCP) && !has(n.theirs, lane.Verbs):
		return n.here, n.there, true
	case !has(n.ours, lane.Verbs) && !has(n.theirs, lane.TCP):
		return n.there, n.here, true
	}
	return "", "", false
}

// down returns the names of the ports that have no address, because they are down, for the user: RDMA ports if
// both nodes have some, else TCP ports.
func (n nodePair) down() (names []string) {
	kind := lane.TCP
	if has(n.ours, lane.Verbs) && has(n.theirs, lane.Verbs) {
		kind = lane.Verbs
	}
	add := func(ports []handshake.Port, node string) {
		for _, p := range ports {
			if kindOf(p) == kind && len(p.Addrs) == 0 {
				names = append(names, lane.PeerPort(p).String()+" on "+node)
			}
		}
	}
	add(n.ours, n.here)
	add(n.theirs, n.there)
	return names
}

// kindOf returns the kind of lane that a port is described for, other than circuits.
func kindOf(p handshake.Port) lane.Kind {
	if p.Device == "" {
		return lane.TCP
	}
	return lane.Verbs
}

// has reports whether any of the described ports is for a kind of lane.
func has(ports []handshake.Port, kind lane.Kind) bool {
	return slices.ContainsFunc(ports, func(p handshake.Port) bool { return kindOf(p) == kind })
}

// offer reports whether any of the described ports can carry a kind of lane at present; a port that is down has
// no address.
func offer(ports []handshake.Port, kind lane.Kind) bool {
	return slices.ContainsFunc(ports, func(p handshake.Port) bool { return len(p.Addrs) > 0 && kindOf(p) == kind })
}

// sayWhyTCP warns the user, once for each peer, that TCP is used although this node has RDMA ports, and why the
// RDMA probes failed. If a reason applies to several peers it warns about the first only, because a large mesh
// has many.
func (f *Finder) sayWhyTCP(s *control.Session, rdma outcome) {
	here := slices.DeleteFunc(f.now(), func(p topology.Port) bool { return p.Device == "" || !p.Active })
	if len(here) == 0 {
		return
	}
	peer := s.Name()
	reason := whyTCP(peer, offer(f.PortsOf(s), lane.Verbs), rdma)
	text := fmt.Sprintf("%s and %s talk over TCP, slower than RDMA, although %s has %s: %s%s", s.LocalName(), peer, s.LocalName(), PortNames(here), f.leftOut(s, true), reason)
	switch {
	case strings.Contains(reason, peer):
		f.Env.WarnOnce("TCP to "+peer, text)
	case f.firstWith(reason, peer):
		f.Env.WarnOnce("TCP to "+peer, text+". Other peers to which this applies are listed by NCCL_MESH_DEBUG=debug")
	default:
		f.Env.Log.Debug(text)
	}
}

// whyTCP returns why there is neither a direct nor a relayed RDMA path to a peer. offers says that the peer has
// RDMA ports.
func whyTCP(peer string, offers bool, rdma outcome) string {
	reason := "no two of their RDMA ports share a cable or a subnet"
	switch {
	case len(rdma.tried) > 0:
		reason = firstTried(rdma.tried) // find logs all of them
	case rdma.err != nil:
		reason = fault.OneLine(rdma.err)
	case !offers:
		reason = peer + " offers no RDMA port; its log says why"
	}
	if rdma.none != nil && offers { // a peer without RDMA ports has no relayed RDMA either
		reason += "; and through other nodes there is no RDMA: " + strings.TrimPrefix(fault.OneLine(rdma.none), fault.ErrUnreachable.Error()+": ")
	}
	return reason
}

// firstWith reports whether a peer is the first to which a reason for TCP applies.
func (f *Finder) firstWith(reason, peer string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.overTCP[reason] == "" {
		f.overTCP[reason] = peer
	}
	return f.overTCP[reason] == peer
}

// firstTried names the first failed candidate and the number of the others, because a large mesh has too many
// for one line.
func firstTried(tried []conn.LaneFailure) string {
	if len(tried) == 1 {
		return "tried " + tried[0].String()
	}
	return fmt.Sprintf("tried %v; and %d more paths, which NCCL_MESH_DEBUG=debug lists", tried[0], len(tried)-1)
}

// PortNames returns the names of ports, joined for the user.
func PortNames(ports []topology.Port) string {
	var names []string
	for _, p := range ports {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// WhyTCP warns the user if a connection that the peer has set up uses TCP because the peer has no RDMA ports.
func (f *Finder) WhyTCP(c *conn.Conn) {
	c.Lock()
	tcp := slices.ContainsFunc(c.Lanes(), func(l *lane.Lane) bool { return l.Port.Kind() == lane.TCP })
	c.Unlock()
	if tcp && !offer(f.PortsOf(c.Session), lane.Verbs) { // in the other cases the sender knows the reason and warns
		f.sayWhyTCP(c.Session, outcome{})
	}
}
