package doctor

import (
	"maps"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
)

// A culprit is nodes that share the failure of all their cables: of several at a node one cable each is less likely to blame
// than the node. It is more than one node where each of them may be the one.
type culprit struct {
	nodes  []string
	peers  []string // at the other ends
	cables int
	ends   []Place // of all the cables, at both ends
}

// culprits are the nodes that halves of cables which fail have in common: those with two or more such cables, of which none works.
func (v *verdict) culprits(failed []half, works func(node string) bool) (all []culprit) {
	cages := map[string]map[string]bool{} // of each node, with a failure
	for _, h := range failed {
		for _, e := range []facts.End{h.a, h.b} {
			if cages[e.Node] == nil {
				cages[e.Node] = map[string]bool{}
			}
			cages[e.Node][v.cageOf(e)] = true
		}
	}
	suspect := func(node string) bool { return len(cages[node]) > 1 && !works(node) }
	for _, node := range slices.Sorted(maps.Keys(cages)) {
		if !suspect(node) || slices.ContainsFunc(all, func(c culprit) bool { return slices.Contains(c.nodes, node) }) {
			continue
		}
		c := culprit{nodes: []string{node}}
		for i := 0; i < len(c.nodes); i++ { // it grows
			for _, h := range failed {
				for _, e := range [][2]string{{h.a.Node, h.b.Node}, {h.b.Node, h.a.Node}} {
					if e[0] == c.nodes[i] && suspect(e[1]) && !slices.Contains(c.nodes, e[1]) {
						c.nodes = append(c.nodes, e[1])
					}
				}
			}
		}
		joined := map[[2]string]bool{}
		for _, h := range failed {
			if !slices.Contains(c.nodes, h.a.Node) && !slices.Contains(c.nodes, h.b.Node) {
				continue
			}
			c.ends = append(c.ends, Place(h.a), Place(h.b))
			joined[[2]string{v.cageOf(h.a), v.cageOf(h.b)}] = true
			for _, e := range []facts.End{h.a, h.b} {
				if !slices.Contains(c.nodes, e.Node) && !slices.Contains(c.peers, e.Node) {
					c.peers = append(c.peers, e.Node)
				}
			}
		}
		c.cables = len(joined)
		all = append(all, c)
	}
	return all
}

// shared returns the nodes that a half's failure shares with all their other cables, for people; "" where there are none. Where all
// cables of three nodes or more fail, and no other node has a part in it, none of them stands out.
func shared(culprits []culprit, h half) string {
	for _, c := range culprits {
		if slices.Contains(c.ends, Place(h.a)) && (len(c.nodes) < 3 || len(c.peers) > 0) {
			return strings.Join(c.nodes, " or ")
		}
	}
	return ""
}

// cageOf identifies the cage of a port among all nodes'.
func (v *verdict) cageOf(e facts.End) string {
	if p := v.port(e); p != nil {
		return e.Node + " " + p.Cage()
	}
	return e.String()
}

// passes returns whether any half of a cable of a node is in one of the states.
func passes(m *topo.Map, states ...topo.State) func(node string) bool {
	return func(node string) bool {
		return slices.ContainsFunc(halves(m), func(h half) bool { return (h.a.Node == node || h.b.Node == node) && slices.Contains(states, h.state) })
	}
}
