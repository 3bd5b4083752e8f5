package path

import (
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// End is who answers at the other end of an interface's cable.
type End uint8

const (
	EndUnknown End = iota // nobody, or nobody was asked
	EndPeer               // the peer's node alone
	EndOther              // one other node alone
	EndSeveral            // more than one node, as on a switch
)

// ends are the ends of interfaces by name, as Config.Ends tells them.
func (f *Finder) ends(s *control.Session, thorough bool) map[string]End {
	if f.Ends == nil || s.Peer().Node == f.Node {
		return nil
	}
	return f.Ends(s, thorough)
}

// sockets are the pairs of ports for sockets, by what their packets pass. Each kind counts only where none before it works.
type sockets struct {
	cables    []topology.Candidate
	shared    []topology.Candidate // networks that other nodes share, unless the user says what lanes go over
	setup     []topology.Candidate // the network that the user names for setting connections up
	uncertain bool                 // no cable was found, and among what is shared may be one at whose end nobody has answered yet
}

// sockets finds out what the packets of sockets to a session's peer would pass. Before it takes a way for a network that
// other nodes share, while this node has cables and none of them is known to lead to the peer, it waits for all answers.
func (f *Finder) sockets(s *control.Session, all []topology.Candidate, ports []topology.Port, peer []handshake.Port, ends func() map[string]End) sockets {
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

// sort finds out what the packets of sockets would pass, given the ends of interfaces: a network that other nodes share where
// another node than the peer answers; or where nobody does, and a default route leads out of the interface or nothing tells
// its speed, as of a tunnel.
func (f *Finder) sort(all []topology.Candidate, ports []topology.Port, peer []handshake.Port, ends map[string]End, sameNode bool) (found sockets) {
	for _, c := range all {
		p := ports[c.Local]
		end := ends[p.Netdev]
		switch {
		case f.Interfaces.Named() && !f.LaneIfs.Named() && f.Interfaces.Match(p.Netdev):
			found.setup = append(found.setup, c)
		case f.LaneIfs.Named(), sameNode, end == EndPeer:
			found.cables = append(found.cables, c)
		case end != EndUnknown, p.Default:
			found.shared = append(found.shared, c)
		case p.Assumed():
			found.shared, found.uncertain = append(found.shared, c), true
		default:
			found.cables = append(found.cables, c)
		}
	}
	found.uncertain = found.uncertain && len(found.cables) == 0
	// A slow network beside a fast one would only hold its messages up.
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

// candidates are the pairs of ports that may reach a peer, for queue pairs and for sockets.
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

// meshed reports whether some interface has a cable to one node.
func anyCable(ends map[string]End) bool {
	for _, e := range ends {
		if e == EndPeer || e == EndOther {
			return true
		}
	}
	return false
}
