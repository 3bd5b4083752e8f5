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

// two are two nodes between which a path is looked for, this one and a peer: their names, and
// the ports that each tells the other of.
type nodePair struct {
	here, there  string
	ours, theirs []handshake.Port
	relays       bool // other nodes are known that may relay between them
}

func (f *Finder) nodes(s *control.Session) nodePair {
	return nodePair{s.LocalName(), s.Name(), f.Advertised(), f.PortsOf(s), f.others(s)}
}

// others reports whether a node has been heard of that may relay some day between this one
// and a peer.
func (f *Finder) others(s *control.Session) bool {
	return f.Routes != nil && f.Others != nil && f.Others(s)
}

// NoPath is the error of two nodes between which nothing passed.
func (f *Finder) NoPath(s *control.Session, tried []conn.LaneFailure, slow string) error {
	n := f.with(s)
	joint, why := n.why(tried, slow, func() string { return topology.Explain(f.now(), n.theirs, f.GIDs) })
	return fmt.Errorf("%w: no path between %s and %s%s%s%s", fault.ErrUnreachable, n.here, n.there, joint, f.leftOut(s, false), why)
}

// why says for people why there is no path, and what to do, behind what joins that to the names of the two
// nodes. explain lists the addresses of both.
func (n two) why(tried []conn.LaneFailure, slow string, explain func() string) (joint, text string) {
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

// differ reports whether the two nodes have no kind of lane in common, and which of them has
// queue pairs only, and which sockets only. A port that is down is one all the same.
func (n nodePair) differ() (rdma, tcp string, ok bool) {
	switch {
	case !has(n.ours, lane.TCP) && !has(n.theirs, lane.Verbs):
		return n.here, n.there, true
	case !has(n.ours, lane.Verbs) && !has(n.theirs, lane.TCP):
		return n.there, n.here, true
	}
	return "", "", false
}

// down names the ports that carry nothing now, for people: those of RDMA where both nodes
// have some, else those for TCP.
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

// kindOf is the kind of lanes that a port is for, circuits apart.
func kindOf(p handshake.Port) lane.Kind {
	if p.Device == "" {
		return lane.TCP
	}
	return lane.Verbs
}

// has reports whether any of the ports that a peer is told of is for a kind of lane.
func has(ports []handshake.Port, kind lane.Kind) bool {
	return slices.ContainsFunc(ports, func(p handshake.Port) bool { return kindOf(p) == kind })
}

// offer reports whether any of the ports that a peer is told of can carry a kind
// of lane: it has no address of one that is down.
func offer(ports []handshake.Port, kind lane.Kind) bool {
	return slices.ContainsFunc(ports, func(p handshake.Port) bool { return len(p.Addrs) > 0 && kindOf(p) == kind })
}

// sayWhyTCP tells the user, once for each peer, that TCP is used although RDMA might have been, and what became of the
// trials of RDMA. Of the peers that share a reason it warns of the first only: on a large mesh they are many.
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

// whyTCP returns why there is no RDMA to a peer, which offers it or not, directly or through other nodes.
func whyTCP(peer string, offers bool, rdma outcome) string {
	reason := "no two of their RDMA ports share a cable or a subnet"
	switch {
	case len(rdma.tried) > 0:
		reason = firstTried(rdma.tried) // find lists them all
	case rdma.err != nil:
		reason = OneLine(rdma.err)
	case !offers:
		reason = peer + " offers no RDMA port; its log says why"
	}
	if rdma.none != nil && offers { // a peer without RDMA has none through other nodes either
		reason += "; and through other nodes there is no RDMA: " + strings.TrimPrefix(OneLine(rdma.none), fault.ErrUnreachable.Error()+": ")
	}
	return reason
}

// firstWith reports whether a peer is the first to which TCP is used for a reason.
func (f *Finder) firstWith(reason, peer string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.overTCP[reason] == "" {
		f.overTCP[reason] = peer
	}
	return f.overTCP[reason] == peer
}

// firstTried is what was tried, in a line: on a large mesh it is a great deal.
func firstTried(tried []conn.LaneFailure) string {
	if len(tried) == 1 {
		return "tried " + tried[0].String()
	}
	return fmt.Sprintf("tried %v; and %d more paths, which NCCL_MESH_DEBUG=debug lists", tried[0], len(tried)-1)
}

// PortNames lists ports for people.
func PortNames(ports []topology.Port) string {
	var names []string
	for _, p := range ports {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// OneLine is what several errors say, joined as those of one cause.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// WhyTCP tells the user why a connection that the peer has set up runs over TCP, where
// it is for this side to say.
func (f *Finder) WhyTCP(c *conn.Conn) {
	c.Lock()
	tcp := slices.ContainsFunc(c.Lanes(), func(l *lane.Lane) bool { return l.Port.Kind() == lane.TCP })
	c.Unlock()
	if tcp && !offer(f.PortsOf(c.Session), lane.Verbs) { // else it is the sender who knows why
		f.sayWhyTCP(c.Session, outcome{})
	}
}
