package doctor

import (
	"maps"
	"net/netip"
	"slices"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// half is what joins a port to another: one of a cable's.
type half struct {
	a, b  facts.End
	mtu   [2]int
	state topo.State
	cable *topo.Cable

	subnet netip.Prefix // of a pair of ports by their addresses
}

// spot is where the half is.
func (h half) spot() spot { return spot{[]Place{Place(h.a), Place(h.b)}, cableName(h.cable.Ends)} }

// cableName names a cable by its ends.
func cableName(ends [2]topo.End) string { return ends[0].String() + " ═ " + ends[1].String() }

// proved is the map of the cables. Of nodes that are not on it, and where there is none, that
// is said.
func proved(v *verdict) (m topo.Map, ok bool) {
	m, ok = v.Map.Get()
	for i := range v.Nodes {
		if !ok {
			v.unknown(on(&v.Nodes[i]), v.Map.Because())
		}
	}
	for _, n := range m.Nodes {
		if n.Error != "" {
			v.unknown(both(n.Name), "its cables were not tried: "+n.Error)
		}
	}
	return m, ok
}

// halves are those of all cables, of which packets have passed over some.
func halves(m *topo.Map) (all []half) {
	for i := range m.Cables {
		all = append(all, halvesOf(&m.Cables[i])...)
	}
	return all
}

func halvesOf(c *topo.Cable) (all []half) {
	for _, h := range c.Halves {
		all = append(all, half{
			a: facts.End{Node: c.Ends[0].Node, Port: h.Ports[0]}, b: facts.End{Node: c.Ends[1].Node, Port: h.Ports[1]}, mtu: h.MTU, state: h.State, cable: c,
		})
	}
	return all
}

// port is the port at an end, nil where the node does not show it.
func (v *verdict) port(e facts.End) *topology.Port {
	for i := range v.Nodes {
		if v.Nodes[i].Name != e.Node {
			continue
		}
		found, _ := v.Nodes[i].Topology.Get()
		for _, ports := range [][]topology.Port{found.Ports, found.Plain} {
			for j := range ports {
				if facts.PortName(&ports[j]) == e.Port {
					return &ports[j]
				}
			}
		}
	}
	return nil
}

// isRDMA reports whether an end is an RDMA device's that is up.
func (v *verdict) isRDMA(e facts.End) bool {
	p := v.port(e)
	return p != nil && p.Device != "" && p.Active
}

// notCables are kinds of interfaces that no cable is plugged into.
var notCables = []string{"bridge", "dummy", "gre", "gretap", "ifb", "ipip", "openvswitch", "sit", "tun", "tuntap", "vti", "vxlan", "wireguard", "xfrm"}

// wired are the interfaces without an RDMA device that may have a cable of the mesh, whatever their state. Those that lead to
// other networks have a default route, or are the ones that the user names for setting connections up.
func wired(n *facts.Node) (all []topology.Port) {
	found, _ := n.Topology.Get()
	setUp, every := choiceOf(n).setUp, topology.IfFilter{}
	for _, p := range append(every.Select(found.Plain), every.Waiting(found.Plain)...) {
		l := linkOf(n, p.Netdev)
		rdma := slices.ContainsFunc(found.Ports, func(r topology.Port) bool { return r.Netdev == p.Netdev })
		if l != nil && !rdma && l.Master == 0 && !p.Loopback && !p.Default && !p.Wireless && !slices.Contains(notCables, l.Kind) && !(setUp.Named() && setUp.Match(p.Netdev)) {
			all = append(all, p)
		}
	}
	return all
}

// node is one by its name, nil where it is not known.
func (v *verdict) node(name string) *facts.Node {
	for i := range v.Nodes {
		if v.Nodes[i].Name == name {
			return &v.Nodes[i]
		}
	}
	return nil
}

// pairs are the ports that may have a cable and are alone in a subnet with a port of another node, as far as ok says that
// they count, each pair once.
func (v *verdict) pairs(ok func(*topology.Port) bool) (all []half) {
	in := map[netip.Prefix][]facts.End{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		found, _ := n.Topology.Get()
		for _, p := range append(slices.Clone(found.Ports), wired(n)...) {
			for _, a := range given(p.Addrs) {
				if e := (facts.End{Node: n.Name, Port: facts.PortName(&p)}); ok(&p) && !slices.Contains(in[a.Masked()], e) {
					in[a.Masked()] = append(in[a.Masked()], e)
				}
			}
		}
	}
	done := map[[2]facts.End]bool{} // by another subnet
	for _, subnet := range slices.SortedFunc(maps.Keys(in), comparePrefix) {
		ends := in[subnet]
		if len(ends) != 2 || ends[0].Node == ends[1].Node || done[[2]facts.End(ends)] {
			continue
		}
		done[[2]facts.End(ends)] = true
		c := &topo.Cable{Ends: [2]topo.End{{Node: ends[0].Node, Cage: ends[0].Port}, {Node: ends[1].Node, Cage: ends[1].Port}}}
		all = append(all, half{a: ends[0], b: ends[1], state: topo.None, subnet: subnet, cable: c})
	}
	return all
}

// alive are the ports over which something has come from another node.
func (v *verdict) alive(m *topo.Map) map[facts.End]bool {
	alive := map[facts.End]bool{}
	for _, h := range halves(m) {
		if h.state != topo.None {
			alive[h.a], alive[h.b] = true, true
		}
	}
	for _, n := range m.Networks {
		for _, e := range n.Ends {
			for _, at := range v.portsIn(e) {
				alive[facts.End(at)] = true
			}
		}
	}
	return alive
}

// joined returns whether packets pass over a cable of two nodes.
func joined(m *topo.Map) func(a, b string) bool {
	pairs := map[[2]string]bool{}
	for _, h := range halves(m) {
		if h.state == topo.RDMA || h.state == topo.TCP {
			pairs[[2]string{h.a.Node, h.b.Node}], pairs[[2]string{h.b.Node, h.a.Node}] = true, true
		}
	}
	return func(a, b string) bool { return pairs[[2]string{a, b}] }
}

// hasRDMA reports whether a node has RDMA ports: then its other interfaces are less likely to have cables of the mesh.
func (v *verdict) hasRDMA(node string) bool {
	n := v.node(node)
	if n == nil {
		return false
	}
	found, _ := n.Topology.Get()
	return len(found.Ports) > 0
}

// dead are the pairs of ports that are up and alone in a subnet, and over which nothing has come, neither from each other nor
// from anybody else. Of nodes whose cables were not tried nothing is known. Interfaces alone of nodes with RDMA count only where
// the nodes have no other cable in common: they may be at networks that are none of the mesh's.
func (v *verdict) dead(m *topo.Map) []half {
	alive, joined := v.alive(m), joined(m)
	tried := map[string]bool{}
	for _, n := range m.Nodes {
		tried[n.Name] = n.Error == ""
	}
	return slices.DeleteFunc(v.pairs(func(p *topology.Port) bool { return p.Active }), func(h half) bool {
		mesh := v.isRDMA(h.a) && v.isRDMA(h.b) || !v.hasRDMA(h.a.Node) && !v.hasRDMA(h.b.Node) || !joined(h.a.Node, h.b.Node)
		return alive[h.a] || alive[h.b] || !tried[h.a.Node] || !tried[h.b.Node] || !mesh
	})
}
