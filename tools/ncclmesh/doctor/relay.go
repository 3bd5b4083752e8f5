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

// noCommonCable looks at nodes between which others relay, or should: what packets have shown.
func noCommonCable(v *verdict) {
	m, _ := proved(v)
	dead := v.dead(&m)
	heard := slices.DeleteFunc(halves(&m), func(h half) bool { return h.state != topo.Heard })
	var blind []string
	for _, n := range m.Nodes {
		if n.Error != "" || n.NoProcess != "" {
			blind = append(blind, n.Name)
		}
	}
	var all []routed
	for i := range m.Apart {
		a := &m.Apart[i]
		if len(a.Through) > 0 {
			all = append(all, v.routed(&m, a)...)
			continue
		}
		failed := func(h half) bool {
			return h.a.Node == a.Nodes[0] && h.b.Node == a.Nodes[1] || h.a.Node == a.Nodes[1] && h.b.Node == a.Nodes[0]
		}
		switch {
		case v.apart(a.Nodes[0], a.Nodes[1]) || slices.ContainsFunc(slices.Concat(dead, heard), failed): // which port-left-out, cable-dead or tcp-filtered reports
		case len(blind) > 0:
			v.unknown(both(a.Nodes[:]...), "the cables of "+strings.Join(blind, ", ")+" are not known")
		default:
			v.fail(both(a.Nodes[:]...), fmt.Sprintf("put a cable between %s and %s, or between one of them and a node with a cable to the other", a.Nodes[0], a.Nodes[1]), "no cable leads from %s to %s, not even through other nodes", a.Nodes[0], a.Nodes[1])
		}
	}
	v.tell(all)
	v.uncabled(&m)
}

// routed is what is known of routes between two nodes, or of some of them.
type routed struct {
	nodes    [2]string
	severity Severity
	cause    string // the check that has found why
	said     string // of the two
	why      string // the same words are told once
	remedy   string
}

// fewPairs is how many pairs of nodes with the same to say of them are told one by one: a ring of eight has twenty.
const fewPairs = 2

// tell makes findings of what is known of pairs of nodes.
func (v *verdict) tell(all []routed) {
	for len(all) > 0 {
		first, rest := all[0], []routed(nil)
		alike := []routed{first}
		for _, r := range all[1:] {
			if r.severity == first.severity && r.why == first.why {
				alike = append(alike, r)
			} else {
				rest = append(rest, r)
			}
		}
		if all = rest; len(alike) <= fewPairs {
			for _, r := range alike {
				v.add(r.severity, both(r.nodes[:]...), r.remedy, "%s", "they share no cable, and "+r.said+r.why)
				v.found[len(v.found)-1].Cause = r.cause
			}
			continue
		}
		var nodes []string
		for _, r := range alike {
			nodes = add(add(nodes, r.nodes[0]), r.nodes[1])
		}
		slices.Sort(nodes)
		names, more := pairs(alike)
		said := map[Severity]string{Info: "talk through others", Warn: "one of the routes between them is missing", Fail: "nothing passes between them", Unknown: "not all routes between them have passed packets"}[first.severity]
		v.add(first.severity, both(nodes...), remedyOf(alike), "%s", names+" share no cable, and "+said+first.why+more)
	}
}

// maxPairs is how many pairs of nodes are named.
const maxPairs = 8

// pairs names pairs of nodes; of too many it says how many there are, and where they are listed.
func pairs(all []routed) (names, more string) {
	var each []string
	for _, r := range all {
		each = append(each, r.nodes[0]+"–"+r.nodes[1])
	}
	if n := len(each); n > maxPairs {
		return fmt.Sprintf("%d pairs of them", n), "; ncclmesh topo --json lists them"
	}
	return strings.Join(each, ", "), ""
}

// remedyOf is that of several pairs of nodes: without a cable between each two.
func remedyOf(all []routed) string {
	remedy, _, _ := strings.Cut(all[0].remedy, orCable)
	return remedy
}

// orCable comes before the second half of a remedy, which is for two nodes alone.
const orCable = "; or put a cable between "

// routed returns what packets have shown of the routes between two nodes.
func (v *verdict) routed(m *topo.Map, a *topo.Apart) (all []routed) {
	if !a.Tried {
		return []routed{{nodes: a.Nodes, severity: Unknown, said: "no packet has tried the route " + a.Ways()}}
	}
	missing := m.Missing(a)
	cable := orCable + a.Nodes[0] + " and " + a.Nodes[1]
	remedy := fmt.Sprintf("let UDP port %d and the ports of NCCL_MESH_PORTS pass on both nodes and on those between%s", topo.DiscoveryPort, cable)
	if a.Error != "" || len(a.Routes) == 0 {
		r := routed{nodes: a.Nodes, severity: Fail, said: "nothing passes through " + either(missing), remedy: remedy}
		var whys, remedies []string
		for _, way := range missing {
			if b := v.barred(m, a, way); b.why != "" {
				whys, remedies, r.cause = add(whys, b.why), add(remedies, b.remedy), b.check
			}
		}
		if len(whys) > 0 {
			r.why, r.remedy = ": "+strings.Join(whys, "; "), strings.Join(remedies, "; ")+cable
		} else {
			r.why = ": " + a.Error
		}
		return []routed{r}
	}
	for _, way := range missing {
		through := strings.Join(way, " and ")
		b := v.barred(m, a, way)
		if b.why == "" {
			all = append(all, routed{nodes: a.Nodes, severity: Unknown, said: "talk " + a.Proved() + "; nothing has passed through " + through + ", in two tries"})
			continue
		}
		all = append(all, routed{
			nodes: a.Nodes, severity: Warn, cause: b.check, why: ": " + b.why, remedy: b.remedy,
			said: "talk " + a.Proved() + " alone; nothing passes through " + through,
		})
	}
	measured, _ := v.Relayed.Get()
	i := slices.IndexFunc(measured, func(r facts.Relayed) bool { return r.Nodes == a.Nodes })
	switch {
	case i >= 0 && measured[i].Error != "":
		return append(all, routed{nodes: a.Nodes, severity: Fail, said: "a measurement through the nodes between ended", why: ": " + measured[i].Error, remedy: remedy})
	case i >= 0 && !measured[i].By:
		return append(all, routed{nodes: a.Nodes, severity: Fail, said: "a measurement went over " + measured[i].Lanes + ", and through no node", remedy: remedy})
	case len(all) > 0:
		return all
	}
	return []routed{{nodes: a.Nodes, severity: Info, said: "talk " + a.Proved()}}
}

// either names ways of which none passes.
func either(ways [][]string) string {
	var names []string
	for _, way := range ways {
		names = append(names, strings.Join(way, " and "))
	}
	return strings.Join(names, ", nor through ")
}

// barred is why nothing passes along a way, as far as it is known.
type barred struct {
	why, remedy string // "" where it is not known
	check       string // that reports it; none: this one does
}

// barred returns why nothing passes along a way between two nodes.
func (v *verdict) barred(m *topo.Map, a *topo.Apart, way []string) barred {
	for _, name := range way {
		if i := slices.IndexFunc(m.Nodes, func(n topo.Node) bool { return n.Name == name }); i >= 0 && m.Nodes[i].NoProcess != "" {
			return barred{"the plugin fails on " + name, "do what plugin-fails says", "plugin-fails"}
		}
	}
	path := slices.Concat(a.Nodes[:1], way, a.Nodes[1:])
	why, remedy := v.blocked(path)
	for i := 1; i < len(path) && why == ""; i++ {
		why, remedy = undiscovered(m, path[i-1], path[i])
	}
	return barred{why: why, remedy: remedy}
}

// undiscovered says why no route leads over the cables of two nodes, and what to do, where packets pass over them and the neighbour
// discovery of one is not answered by the other; "" where it is, over any of them.
func undiscovered(m *topo.Map, x, y string) (why, remedy string) {
	for i := range m.Cables {
		c := &m.Cables[i]
		if ends := [2]string{c.Ends[0].Node, c.Ends[1].Node}; ends != [2]string{x, y} && ends != [2]string{y, x} {
			continue
		}
		var at, nodes []string
		for side, unheard := range c.Unheard {
			if unheard {
				at, nodes = append(at, c.Ends[side].String()), append(nodes, c.Ends[side].Node)
			}
		}
		switch {
		case len(at) == 0:
			return "", ""
		case why != "":
			continue
		case len(at) == 1:
			why = fmt.Sprintf("%s does not answer neighbour discovery", at[0])
		default:
			why = fmt.Sprintf("%s do not answer each other's neighbour discovery", strings.Join(at, " and "))
		}
		remedy = fmt.Sprintf("let UDP port %d pass on %s (nft list ruleset)", topo.DiscoveryPort, strings.Join(nodes, " and "))
	}
	return why, remedy
}

// blocked says which settings forbid to relay along a path of nodes, from its first to its last, and what to do; "" where none do.
func (v *verdict) blocked(path []string) (why, remedy string) {
	for i := 1; i < len(path)-1; i++ {
		for _, other := range []string{path[i-1], path[i+1]} {
			if why, remedy = v.closed(path[i], other); why != "" {
				return why, remedy
			}
		}
	}
	return "", ""
}

// uncabled looks at nodes without any cable that works: what they send takes other networks.
func (v *verdict) uncabled(m *topo.Map) {
	meant := v.pairs(func(*topology.Port) bool { return true }) // of which others report what is wrong
	mesh := slices.ContainsFunc(halves(m), func(h half) bool { return h.state == topo.RDMA || h.state == topo.TCP })
	var bare []string
	for _, n := range m.Nodes {
		reported := slices.ContainsFunc(slices.Concat(halves(m), meant), func(h half) bool { return h.a.Node == n.Name || h.b.Node == n.Name })
		if n.Error == "" && n.NoProcess == "" && !reported {
			bare = append(bare, n.Name)
		}
	}
	switch {
	case !mesh && len(bare) > 1 && len(bare) == len(m.Nodes) && len(m.Networks) == 0:
		v.warn(both(bare...), "put a cable between them, or name the nodes between them too", "no cable leads from one of them to another: what they send goes over other networks, if at all")
	case mesh:
		for _, name := range bare {
			v.warn(both(name), "put a cable between it and one of the others", "no cable leads to it: what it sends goes over other networks, if at all")
		}
	}
}

// closed says why a node does not relay what comes from another, by their settings, and what to do; "" where they are not against
// it. Of a node that is not known it is "", too.
func (v *verdict) closed(relay, other string) (why, remedy string) {
	r, o := v.node(relay), v.node(other)
	if r == nil || o == nil {
		return "", ""
	}
	for _, n := range []*facts.Node{r, o} {
		if value, _, _ := holds(n, relayVariable); value == "0" {
			return fmt.Sprintf("%s has %s=0", n.Name, relayVariable), fmt.Sprintf("unset %s on %s, or set it to auto", relayVariable, n.Name)
		}
	}
	a, _, _ := holds(r, keyVariable)
	b, _, _ := holds(o, keyVariable)
	remedy = "give all nodes the same " + keyVariable + ", or none"
	switch {
	case a == b:
		return "", ""
	case v.oddKey(r, a):
		return relay + odd(a, b), remedy
	case v.oddKey(o, b):
		return other + odd(b, a), remedy
	case a == "":
		return fmt.Sprintf("%s has no %s, and %s has one", relay, keyVariable, other), remedy
	case b == "":
		return fmt.Sprintf("%s has a %s, and %s has none", relay, keyVariable, other), remedy
	}
	return fmt.Sprintf("%s and %s have different values of %s", relay, other, keyVariable), remedy
}

// oddKey reports whether a node is the only one with its key, or without one, of three nodes or more whose other keys are the same.
func (v *verdict) oddKey(n *facts.Node, key string) bool {
	others := map[string]bool{}
	for i := range v.Nodes {
		if o := &v.Nodes[i]; o != n {
			k, _, _ := holds(o, keyVariable)
			others[k] = true
		}
	}
	return len(v.Nodes) > 2 && len(others) == 1 && !others[key]
}

// odd says how the key of one node differs from that of all others.
func odd(key, others string) string {
	switch {
	case key == "":
		return " has no " + keyVariable + ", and the others have one"
	case others == "":
		return " has a " + keyVariable + ", and the others have none"
	}
	return " has another " + keyVariable + " than the others"
}
