package path

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/overlay"
	"ncclmesh/transport/routing"
	"ncclmesh/transport/topology"
)

// relayed validates the relayed paths to a peer for which wanted returns true: first the short ones together,
// and if none of them works the spare ones.
func (f *Finder) relayed(s *control.Session, rdma bool, wanted func(routing.Route) bool) (r outcome) {
	kind := lane.TCP
	if rdma {
		kind = lane.Verbs
	}
	switch {
	case f.Overlay == nil:
		return outcome{none: overlay.ErrOff}
	case s.Peer().Node == f.Node, !offer(f.Advertised(), kind), !offer(f.PortsOf(s), kind):
		return outcome{}
	}
	routes, err := f.Overlay.Routes(f.Env.Context, s.Peer().Node, rdma)
	if err != nil {
		return outcome{none: err}
	}
	for _, spare := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(routes), func(r routing.Route) bool { return r.Spare != spare || !wanted(r) })
		t := f.tryRoutes(s, some, rdma)
		r.tried, r.slow, r.err = append(r.tried, t.tried...), t.slow, join(s, r.err, t.err)
		if r.found = t.found; len(r.found) > 0 || r.err != nil && !s.Alive() {
			return r
		}
	}
	return r
}

// tryRoutes validates relayed paths, all at once.
func (f *Finder) tryRoutes(s *control.Session, routes []routing.Route, rdma bool) (r outcome) {
	var plan []lane.Spec
	var pairs [][2]int
	peer := f.PortsOf(s)
	for _, route := range routes {
		own, from, ok := f.portAt(route.Port, rdma)
		i := slices.IndexFunc(peer, func(p handshake.Port) bool { return p.Netdev == route.PeerName && (p.Device != "") == rdma })
		if !ok || i < 0 || len(peer[i].Addrs) == 0 || len(plan) == lane.MaxDomains {
			continue
		}
		plan = append(plan, lane.Spec{
			Port: own, From: from, Peer: peer[i], To: bestAddr(peer[i]), Route: &lane.Route{Via: route.Via, Names: route.Names},
			Weight: float64(min(int(route.Mbps), own.Now().Mbps(), int(max(1, peer[i].SpeedMbps)))),
		})
		pairs = append(pairs, [2]int{int(own.Index()), i})
	}
	if len(plan) == 0 {
		return outcome{}
	}
	t := f.probe(s, plan)
	for i := range plan {
		if t.mask&(1<<i) != 0 {
			r.found = append(r.found, validated{plan[i], pairs[i]})
		}
	}
	r.tried, r.slow, r.err = t.tried, t.slow, t.err
	return r
}

// portAt returns this node's port for relayed lanes on the interface of port index, and its address there.
func (f *Finder) portAt(index uint8, rdma bool) (lane.Port, topology.Address, bool) {
	kind := lane.TCP
	if rdma {
		kind = lane.Verbs
	}
	i := lane.PortAt(f.Ports, index, kind)
	if i < 0 {
		return nil, topology.Address{}, false
	}
	p := f.Ports[i]
	if rdma {
		p = f.Circuits(p)
	}
	gids := p.Now().GIDs
	if rdma != (p.Kind() == lane.Circuit) || len(gids) == 0 {
		return nil, topology.Address{}, false
	}
	return p, gids[max(0, slices.IndexFunc(gids, ownAddress))], true
}

// bestAddr returns a configured address of a port, or any if it has none.
func bestAddr(p handshake.Port) netip.Addr {
	return p.Addrs[max(0, slices.IndexFunc(p.Addrs, peersAddress))].Addr
}

// sayWhy tells the user, once for each peer, that connections are relayed (through), or why they use TCP (tcp).
func (f *Finder) sayWhy(s *control.Session, tcp, through bool, found []validated, before outcome) {
	if through {
		f.sayRelayed(s, found)
	}
	if tcp {
		f.sayWhyTCP(s, before)
	}
}

// sayRelayed tells the user, once for each peer, which relays a connection uses.
func (f *Finder) sayRelayed(s *control.Session, found []validated) {
	var paths []string
	for _, p := range found {
		paths = append(paths, fmt.Sprintf("%v%v (%s)", p.Port.Now(), p.Route, hops(len(p.Route.Via))))
	}
	f.Env.InfoOnce("relay to "+s.Name(), fmt.Sprintf("no cable joins %s and %s: they talk over %s", s.LocalName(), s.Name(), strings.Join(paths, " and over ")))
}

func hops(relays int) string {
	if relays == 1 {
		return "1 relay"
	}
	return fmt.Sprintf("%d relays", relays)
}
