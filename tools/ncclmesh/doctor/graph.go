package doctor

import (
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
			facts.End{Node: c.Ends[0].Node, Port: h.Ports[0]}, facts.End{Node: c.Ends[1].Node, Port: h.Ports[1]}, h.MTU, h.State, c,
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
