package path

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/bundle"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// NoPath is the error of two nodes between which nothing passed.
func (f *Finder) NoPath(s *control.Session, tried []bundle.Finding, slow string) error {
	rdma, tcp, differ := f.differ(s)
	left := f.leftOut(s, false)
	switch {
	case differ:
		return fmt.Errorf("%w: no path between %s and %s: %s%s offers RDMA only, as with NCCL_MESH_TRANSPORT=rdma, and %s TCP only, as with NCCL_MESH_TRANSPORT=tcp or without a working RDMA device. "+
			"Set NCCL_MESH_TRANSPORT=auto on %s, or make RDMA work on %s", fault.ErrUnreachable, s.LocalName(), s.Name(), left, rdma, tcp, rdma, tcp)
	case len(tried) == 0:
		return fmt.Errorf("%w: no path between %s and %s: %sno two of their ports share a subnet: %s. Cable the two nodes, or give both ends of a cable addresses in one subnet",
			fault.ErrUnreachable, s.LocalName(), s.Name(), left, topology.Explain(f.now(), f.PortsOf(s), f.GIDs))
	}
	if slow != "" {
		return fmt.Errorf("%w: no path between %s and %s was proved in time; %s%s; %s", fault.ErrUnreachable, s.LocalName(), s.Name(), left, slow, firstTried(tried))
	}
	return fmt.Errorf("%w: no path between %s and %s; %s%s. Check the cables between the two nodes, and that both ends of each have addresses in one subnet",
		fault.ErrUnreachable, s.LocalName(), s.Name(), left, firstTried(tried))
}

// differ reports whether this node and a peer have no kind of lane in common, and
// which of them has queue pairs only, and which sockets only.
func (f *Finder) differ(s *control.Session) (rdma, tcp string, ok bool) {
	ours, theirs := f.Told(), f.PortsOf(s)
	switch {
	case !offer(ours, lane.TCP) && !offer(theirs, lane.Verbs):
		return s.LocalName(), s.Name(), true
	case !offer(ours, lane.Verbs) && !offer(theirs, lane.TCP):
		return s.Name(), s.LocalName(), true
	}
	return "", "", false
}

// offer reports whether any of the ports that a peer is told of can carry a kind
// of lane: it has no address of one that is down.
func offer(ports []handshake.Port, kind lane.Kind) bool {
	return slices.ContainsFunc(ports, func(p handshake.Port) bool { return len(p.Addrs) > 0 && (p.Device == "") == (kind == lane.TCP) })
}

// sayWhyTCP tells the user, once for each peer, that TCP is used although RDMA
// might have been.
func (f *Finder) sayWhyTCP(s *control.Session, why error, tried []bundle.Finding) {
	peer := s.Name()
	here := slices.DeleteFunc(f.now(), func(p topology.Port) bool { return p.Device == "" || !p.Active })
	if len(here) == 0 {
		return
	}
	reason := "no two RDMA ports of theirs share a cable or a subnet"
	switch {
	case len(tried) > 0:
		reason = firstTried(tried) // find lists them all
	case why != nil:
		reason = OneLine(why)
	case !offer(f.PortsOf(s), lane.Verbs):
		reason = peer + " offers no RDMA port; its log says why"
	}
	f.Env.WarnOnce("TCP to "+peer, fmt.Sprintf("%s and %s talk over TCP, slower than RDMA, although %s has %s: %s%s",
		s.LocalName(), peer, s.LocalName(), PortNames(here), f.leftOut(s, true), reason))
}

// firstTried is what was tried, in a line: on a large mesh it is a great deal.
func firstTried(tried []bundle.Finding) string {
	if len(tried) == 1 {
		return "tried " + tried[0].String()
	}
	return fmt.Sprintf("tried %v; and %d more ways, which NCCL_MESH_DEBUG=debug lists", tried[0], len(tried)-1)
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
func (f *Finder) WhyTCP(b *bundle.Bundle) {
	b.Lock()
	tcp := slices.ContainsFunc(b.Lanes(), func(l *lane.Lane) bool { return l.Port.Kind() == lane.TCP })
	b.Unlock()
	if tcp && !offer(f.PortsOf(b.Session), lane.Verbs) { // else it is the sender who knows why
		f.sayWhyTCP(b.Session, nil, nil)
	}
}
