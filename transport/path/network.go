package path

import (
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// ends returns what is at the other ends of the cables of this node's interfaces, by interface name, relative to a
// session's peer, or nil if relaying is off or the peer is on this node. It may block for a moment; if thorough is true,
// until all queries have ended, which may take seconds.
func (f *Finder) ends(s *control.Session, thorough bool) map[string]discovery.End {
	if f.Overlay == nil || s.Peer().Node == f.Node {
		return nil
	}
	return f.Overlay.Ends(s.Peer().Node, thorough)
}

// sockets holds the candidates for sockets, by the kind of network. Each kind is used only if no kind before it
// works.
type sockets struct {
	cables    []topology.Candidate
	shared    []topology.Candidate // networks that other nodes share, unless the user has named the interfaces for lanes
	setup     []topology.Candidate // the network that the user has named for the control plane
	uncertain bool                 // there are no cables, and a shared candidate may be a cable whose far end has not answered yet
}

// sockets sorts the candidates for sockets to a session's peer by network. It waits for all neighbours' answers
// before it treats an interface as a shared network, if this node has cables and none of them is known to lead
// to the peer.
func (f *Finder) sockets(s *control.Session, all []topology.Candidate, ports []topology.Port, peer []handshake.Port, ends func() map[string]discovery.End) sockets {
	if len(all) == 0 {
		return sockets{}
	}
	sameNode := s.Peer().Node == f.Node
	found := f.sort(all, ports, peer, ends(), sameNode)
	if found.uncertain && anyCable(ends()) {
		found = f.sort(all, ports, peer, f.ends(s, true), sameNode)
	}
	return found
}

// sort sorts candidates for sockets by network, given the ends of interfaces. A candidate's network is shared
// if another node than the peer answers on it; or if no node answers and a default route uses the interface, or
// its speed is unknown, as that of a tunnel.
func (f *Finder) sort(all []topology.Candidate, ports []topology.Port, peer []handshake.Port, ends map[string]discovery.End, sameNode bool) (found sockets) {
	for _, c := range all {
		p := ports[c.Local]
		end := ends[p.Netdev]
		switch {
		case f.Interfaces.Named() && !f.LaneIfs.Named() && f.Interfaces.Match(p.Netdev):
			found.setup = append(found.setup, c)
		case f.LaneIfs.Named(), sameNode, end == discovery.EndPeer:
			found.cables = append(found.cables, c)
		case end != discovery.EndUnknown, p.Default:
			found.shared = append(found.shared, c)
		case p.Assumed():
			found.shared, found.uncertain = append(found.shared, c), true
		default:
			found.cables = append(found.cables, c)
		}
	}
	found.uncertain = found.uncertain && len(found.cables) == 0
	// A slow network beside a fast one would only delay messages.
	speed := func(c topology.Candidate) int { return min(ports[c.Local].Mbps(), int(peer[c.Remote].SpeedMbps)) }
	for _, some := range []*[]topology.Candidate{&found.cables, &found.shared} {
		fastest := 0
		for _, c := range *some {
			fastest = max(fastest, speed(c))
		}
		*some = slices.DeleteFunc(*some, func(c topology.Candidate) bool { return speed(c) < fastest/4 })
	}
	return found
}

// candidates returns the pairs of ports that may reach a peer, for queue pairs and for sockets.
func (f *Finder) candidates(ports []topology.Port, peer []handshake.Port) (queuePairs, sockets []topology.Candidate) {
	for _, c := range topology.Candidates(ports, peer, f.GIDs) {
		if f.Ports[c.Local].Kind() == lane.TCP {
			sockets = append(sockets, c)
		} else {
			queuePairs = append(queuePairs, c)
		}
	}
	return queuePairs, sockets
}

// anyCable reports whether any interface has a cable to exactly one node.
func anyCable(ends map[string]discovery.End) bool {
	for _, e := range ends {
		if e == discovery.EndPeer || e == discovery.EndOther {
			return true
		}
	}
	return false
}
