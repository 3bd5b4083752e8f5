package path

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Route is a way to a peer's node through others.
type Route struct {
	Port    uint8       // of this node, by index: the way begins there
	Peer    string      // network interface of the peer's node: it ends there
	Mbps    uint32      // of its slowest cable
	Cables  bool        // no network that more than two nodes share is on the way
	Spare   bool        // longer than others: of use when those fail
	Through *lane.Route // the nodes between
}

// ErrNoRelay says why nobody was asked.
var ErrNoRelay = errors.New("relaying is off (NCCL_MESH_RELAY=0)")

// relayed proves the ways to a peer through other nodes that are wanted: those that are of use
// together, and when none of them works the longer ones.
func (f *Finder) relayed(s *control.Session, rdma bool, wanted func(Route) bool) (r outcome) {
	kind := lane.TCP
	if rdma {
		kind = lane.Verbs
	}
	switch {
	case f.Routes == nil:
		return outcome{none: ErrNoRelay}
	case s.Peer().Node == f.Node, !offer(f.Advertised(), kind), !offer(f.PortsOf(s), kind):
		return outcome{}
	}
	routes, err := f.Routes(f.Env.Context, s, rdma)
	if err != nil {
		return outcome{none: err}
	}
	for _, spare := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(routes), func(r Route) bool { return r.Spare != spare || !wanted(r) })
		t := f.tryRoutes(s, some, rdma)
		r.tried, r.slow, r.err = append(r.tried, t.tried...), t.slow, join(s, r.err, t.err)
		if r.found = t.found; len(r.found) > 0 || r.err != nil && !s.Alive() {
			return r
		}
	}
	return r
}

// tryRoutes proves routes, all at once.
func (f *Finder) tryRoutes(s *control.Session, routes []Route, rdma bool) (r outcome) {
	var plan []lane.Spec
	var pairs [][2]int
	peer := f.PortsOf(s)
	for _, way := range routes {
		own, from, ok := f.portAt(way.Port, rdma)
		i := slices.IndexFunc(peer, func(p handshake.Port) bool { return p.Netdev == way.Peer && (p.Device != "") == rdma })
		if !ok || i < 0 || len(peer[i].Addrs) == 0 || len(plan) == lane.MaxDomains {
			continue
		}
		plan = append(plan, lane.Spec{
			Port: own, From: from, Peer: peer[i], To: bestAddr(peer[i]), Route: way.Through,
			Weight: float64(min(int(way.Mbps), own.Now().Mbps(), int(max(1, peer[i].SpeedMbps)))),
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

// portAt is this node's port for lanes through others that begin at the cable of a port,
// and its address there.
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

// bestAddr is a port's address that somebody gave it, or any.
func bestAddr(p handshake.Port) netip.Addr {
	return p.Addrs[max(0, slices.IndexFunc(p.Addrs, peersAddress))].Addr
}

// sayWhy tells the user, once for each peer, why a connection goes through others, or over TCP.
func (f *Finder) sayWhy(s *control.Session, tcp, through bool, found []validated, before outcome) {
	if through {
		f.sayRelayed(s, found)
	}
	if tcp {
		f.sayWhyTCP(s, before)
	}
}

// sayRelayed tells the user, once for each peer, through whom a connection goes.
func (f *Finder) sayRelayed(s *control.Session, found []validated) {
	var ways []string
	for _, p := range found {
		ways = append(ways, fmt.Sprintf("%v%v (%s)", p.Port.Now(), p.Route, hops(len(p.Route.Via))))
	}
	f.Env.InfoOnce("relay to "+s.Name(), fmt.Sprintf("no cable joins %s and %s: they talk over %s", s.LocalName(), s.Name(), strings.Join(ways, " and over ")))
}

func hops(relays int) string {
	if relays == 1 {
		return "1 relay"
	}
	return fmt.Sprintf("%d relays", relays)
}
