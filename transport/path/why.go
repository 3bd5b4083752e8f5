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

// sayWhyTCP tells the user, once for each peer, that TCP is used although RDMA might have been, and what became of the
// trials of RDMA. Of the peers that share a reason it warns of the first only: on a large mesh they are many.
func (f *Finder) sayWhyTCP(s *control.Session, rdma trials) {
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
func whyTCP(peer string, offers bool, rdma trials) string {
	reason := "no two RDMA ports of theirs share a cable or a subnet"
	switch {
	case len(rdma.tried) > 0:
		reason = firstTried(rdma.tried) // find lists them all
	case rdma.err != nil:
		reason = OneLine(rdma.err)
	case !offers:
		reason = peer + " offers no RDMA port; its log says why"
	}
	if rdma.none != nil {
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
		f.sayWhyTCP(b.Session, trials{})
	}
}
