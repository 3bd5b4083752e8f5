package doctor

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// Settings by which nodes relay for each other.
const (
	keyVariable   = "NCCL_MESH_KEY" // its value does not leave a node
	relayVariable = "NCCL_MESH_RELAY"
)

// noCommonCable looks at nodes between which others relay, or should.
func noCommonCable(v *verdict) {
	m, _ := proved(v)
	dead := v.dead(&m)
	heard := slices.DeleteFunc(halves(&m), func(h half) bool { return h.state != topo.Heard })
	var talks []talk
	for _, a := range m.Apart {
		if len(a.Through) == 0 {
			failed := func(h half) bool {
				return h.a.Node == a.Nodes[0] && h.b.Node == a.Nodes[1] || h.a.Node == a.Nodes[1] && h.b.Node == a.Nodes[0]
			}
			if v.apart(a.Nodes[0], a.Nodes[1]) || slices.ContainsFunc(slices.Concat(dead, heard), failed) {
				continue // which port-left-out, cable-dead or tcp-filtered reports
			}
			v.fail(both(a.Nodes[:]...), fmt.Sprintf("put a cable between %s and %s, or between one of them and a node with a cable to the other", a.Nodes[0], a.Nodes[1]), "no cable leads from %s to %s, not even through other nodes", a.Nodes[0], a.Nodes[1])
			continue
		}
		if t, ok := v.relayed(a); ok {
			talks = append(talks, t)
		}
	}
	v.talk(talks)
	v.uncabled(&m)
}

// talk is how two nodes without a common cable talk, where nothing is wrong with it.
type talk struct {
	nodes    [2]string
	how      string
	measured bool
}

// fewPairs is how many pairs of nodes that others relay for are told one by one: a ring of eight has twenty.
const fewPairs = 2

func (v *verdict) talk(all []talk) {
	const untried = ", by their settings: no packet has tried it (--bench does)"
	var nodes []string
	proof := ", as measured"
	for _, t := range all {
		if !t.measured {
			proof = untried
		}
		nodes = add(add(nodes, t.nodes[0]), t.nodes[1])
	}
	if len(all) > fewPairs {
		slices.Sort(nodes)
		v.info(both(nodes...), "", "%d pairs of them share no cable, and talk through others%s; ncclmesh topo --json lists them", len(all), proof)
		return
	}
	for _, t := range all {
		proof := untried
		if t.measured {
			proof = ", as measured"
		}
		v.info(both(t.nodes[:]...), "", "they share no cable, and talk %s%s", t.how, proof)
	}
}

// relayed returns how two nodes without a common cable talk: what packets have shown, or else what settings do not forbid. Where
// something is wrong with it, it is a finding, and ok is false.
func (v *verdict) relayed(a topo.Apart) (t talk, ok bool) {
	var open, closed []string
	for _, w := range a.Through {
		if why := v.blocked(slices.Concat(a.Nodes[:1], w, a.Nodes[1:])); why == "" {
			open = append(open, strings.Join(w, " and "))
		} else if !slices.Contains(closed, why) {
			closed = append(closed, why)
		}
	}
	measured, _ := v.Relayed.Get()
	i := slices.IndexFunc(measured, func(r facts.Relayed) bool { return r.Nodes == a.Nodes })
	why := ""
	switch {
	case len(open) == 0:
		why = "no node between them relays: " + strings.Join(closed, "; ")
	case i < 0:
		return talk{nodes: a.Nodes, how: "through " + strings.Join(open, ", or ")}, true
	case measured[i].Error != "":
		why = "nothing is relayed between them: " + measured[i].Error
	case !measured[i].By:
		why = "no node relays between them: packets went over " + measured[i].Lanes
	default:
		return talk{nodes: a.Nodes, how: "over " + measured[i].Lanes, measured: true}, true
	}
	v.fail(both(a.Nodes[:]...), fmt.Sprintf("unset %s, or set it to auto, and give all nodes the same %s; or put a cable between %s and %s", relayVariable, keyVariable, a.Nodes[0], a.Nodes[1]),
		"they share no cable, and %s", why)
	return t, false
}

// blocked says why nothing is relayed along a path of nodes, from its first to its last, by their settings; "" where something is.
func (v *verdict) blocked(path []string) string {
	for i := 1; i < len(path)-1; i++ {
		for _, other := range []string{path[i-1], path[i+1]} {
			if why := v.closed(path[i], other); why != "" {
				return why
			}
		}
	}
	return ""
}

// uncabled looks at nodes without any cable that works, in a mesh that has cables: what they send takes other networks.
func (v *verdict) uncabled(m *topo.Map) {
	meant := v.pairs(func(*topology.Port) bool { return true }) // of which others report what is wrong
	mesh := slices.ContainsFunc(halves(m), func(h half) bool { return h.state == topo.RDMA || h.state == topo.TCP })
	for _, n := range m.Nodes {
		reported := slices.ContainsFunc(slices.Concat(halves(m), meant), func(h half) bool { return h.a.Node == n.Name || h.b.Node == n.Name })
		if mesh && n.Error == "" && !reported {
			v.warn(both(n.Name), "put a cable between it and one of the others", "no cable leads to it: what it sends goes over other networks, if at all")
		}
	}
}

// closed says why a node does not relay what comes from another, by their settings; "" where they are not against it. Of a
// node that is not known it is "", too.
func (v *verdict) closed(relay, other string) string {
	r, o := v.node(relay), v.node(other)
	if r == nil || o == nil {
		return ""
	}
	for _, n := range []*facts.Node{r, o} {
		if value, _, _ := holds(n, relayVariable); value == "0" {
			return fmt.Sprintf("%s has %s=0", n.Name, relayVariable)
		}
	}
	a, _, _ := holds(r, keyVariable)
	b, _, _ := holds(o, keyVariable)
	switch {
	case a == b:
		return ""
	case a == "":
		return fmt.Sprintf("%s has no %s, and %s has one", relay, keyVariable, other)
	case b == "":
		return fmt.Sprintf("%s has a %s, and %s has none", relay, keyVariable, other)
	}
	return fmt.Sprintf("%s and %s have different values of %s", relay, other, keyVariable)
}
