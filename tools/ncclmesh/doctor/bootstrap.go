package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// torchInterfaces are variables by which torch.distributed is told the interfaces, by their whole names, whose addresses a process tells
// the others. NCCL does not read them, so that their mistakes are warnings.
var torchInterfaces = []string{"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}

func bootstrapIface(n *facts.Node, v *verdict) {
	env, ok := told(n, v)
	if !ok {
		return
	}
	named := env["NCCL_SOCKET_IFNAME"]
	filter, err := topology.ParseInterfaces(named)
	torch := slices.DeleteFunc(slices.Clone(torchInterfaces), func(name string) bool { return env[name] == "" })
	given := err == nil && filter.Named() // else env-invalid says so
	if !given && len(torch) == 0 {
		return
	}
	found, ok := n.Topology.Get()
	if !ok {
		v.unknown(on(n), n.Topology.Because())
		return
	}
	for _, variable := range torch {
		for name := range strings.SplitSeq(env[variable], ",") {
			if !slices.ContainsFunc(found.Links, func(l topology.Link) bool { return l.Name == name }) {
				v.warn(on(n), "set it on each node to that node's own interface, or unset it", "%s=%s: the node has no interface %s, and torch.distributed fails", variable, env[variable], name)
			}
		}
	}
	if given && !slices.ContainsFunc(found.Links, func(l topology.Link) bool { return filter.Match(l.Name) }) {
		v.fail(on(n), "name this node's own interface, or unset it", "NCCL_SOCKET_IFNAME=%s names no interface of the node", named)
	}
}

func bootstrapWifi(n *facts.Node, v *verdict) {
	addrs, ok := n.Bootstrap.Get()
	if !ok {
		v.unknown(on(n), n.Bootstrap.Because())
		return
	}
	radios, ok := n.Wireless.Get()
	if !ok {
		v.unknown(on(n), n.Wireless.Because())
		return
	}
	found, _ := n.Topology.Get()
	for _, l := range found.Links {
		if len(addrs) == 0 || !slices.Contains(radios, l.Name) {
			continue
		}
		if slices.ContainsFunc(l.Addrs, func(a netip.Prefix) bool { return a.Addr() == addrs[0] }) {
			v.warn(on(n, l.Name), "connect the node by wire, or name a wired interface in NCCL_SOCKET_IFNAME", "the ranks meet over %s (%s), which is a wireless interface", l.Name, addrs[0])
		}
	}
}

// dials are the connections of all nodes to all others that failed, by their two ends.
type dials map[[2]string]facts.Dial

// bootstrapReach looks at connections of all nodes to all others: ranks make some of them, between neighbours by rank. Where all
// that lead to a node fail, or all from it, the node is named.
func bootstrapReach(v *verdict) {
	failed := dials{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		all, ok := n.Dials.Get()
		if !ok {
			v.unknown(on(n), n.Dials.Because())
		}
		for _, d := range all {
			if d.Try.Failed() {
				failed[[2]string{n.Name, d.Node}] = d
			} else if !d.Try.Done {
				v.unknown(on(n), d.Try.Why)
			}
		}
	}
	for _, name := range failed.nodes() {
		v.unreachable(name, failed)
	}
	for _, n := range v.Nodes {
		for _, to := range v.Nodes {
			if d, ok := failed[[2]string{n.Name, to.Name}]; ok {
				v.fail(both(n.Name, to.Name), shareInterface, "%s cannot be reached at %s%s from %s: %s", to.Name, d.To, v.selected(to.Name, n.Name), n.Name, d.Try.Error)
			}
		}
	}
}

const shareInterface = "name an interface that all nodes share in NCCL_SOCKET_IFNAME, and let TCP pass there"

// unreachable reports a node that no other reaches, or that reaches no other, and removes what it has reported.
func (v *verdict) unreachable(name string, failed dials) {
	to, from := failed.count(name)
	others := len(v.Nodes) - 1
	if others < 2 || to < others && from < others {
		return
	}
	places := []string{name}
	for _, n := range v.Nodes {
		if n.Name != name {
			places = append(places, n.Name)
		}
	}
	at := both(places...)
	if to < others {
		d := failed.take(places, false)
		v.fail(at, shareInterface, "%s reaches no other node: %s at %s: %s", name, d.Node, d.To, d.Try.Error)
		return
	}
	d := failed.take(places, true)
	where := fmt.Sprintf("%s cannot be reached at %s%s from any other node", name, d.To, v.selected(name, places[1]))
	if from < others {
		v.fail(at, shareInterface, "%s: %s", where, d.Try.Error)
		return
	}
	failed.take(places, false)
	v.fail(at, shareInterface, "%s (%s), nor does it reach any of them", where, d.Try.Error)
}

// nodes are the ends of connections, those with the most failures first.
func (f dials) nodes() []string {
	failures := map[string]int{}
	for pair := range f {
		failures[pair[0]]++
		failures[pair[1]]++
	}
	return slices.SortedFunc(maps.Keys(failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(failures[b], failures[a]), strings.Compare(a, b))
	})
}

// count returns how many connections to a node failed, and how many from it.
func (f dials) count(name string) (to, from int) {
	for pair := range f {
		switch name {
		case pair[1]:
			to++
		case pair[0]:
			from++
		}
	}
	return to, from
}

// take removes the failures between the first node and the others, to it or from it, and returns one of them.
func (f dials) take(nodes []string, to bool) (first facts.Dial) {
	for _, other := range nodes[1:] {
		pair := [2]string{nodes[0], other}
		if to {
			pair = [2]string{other, nodes[0]}
		}
		if d, ok := f[pair]; ok {
			if delete(f, pair); first.Node == "" {
				first = d
			}
		}
	}
	return first
}

// selected names the setting that selects a node's address, where another node has a different one.
func (v *verdict) selected(node, other string) string {
	c := v.choice(node)
	if named := c.setUp.String(); c.setUp.Named() && named != v.choice(other).setUp.String() {
		return fmt.Sprintf(", which %s on %s selects,", c.setting("NCCL_SOCKET_IFNAME", named), node)
	}
	return ""
}

// unreached reports whether two nodes cannot reach each other to set connections up: then no path between them was tried.
func (v *verdict) unreached(a, b string) bool {
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		if n := v.node(pair[0]); n != nil {
			dials, _ := n.Dials.Get()
			if slices.ContainsFunc(dials, func(d facts.Dial) bool { return d.Node == pair[1] && d.Try.Failed() }) {
				return true
			}
		}
	}
	return false
}
