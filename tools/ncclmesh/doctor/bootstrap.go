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

func bootstrapIface(n *facts.Node, v *verdict) {
	env, ok := told(n, v)
	if !ok {
		return
	}
	named := env["NCCL_SOCKET_IFNAME"]
	filter, err := topology.ParseInterfaces(named)
	if err != nil || !filter.Named() {
		return // env-invalid says so
	}
	found, ok := n.Topology.Get()
	if !ok {
		v.unknown(on(n), n.Topology.Because())
		return
	}
	if !slices.ContainsFunc(found.Links, func(l topology.Link) bool { return filter.Match(l.Name) }) {
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

// bootstrapReach looks at connections of all nodes to all others: ranks make some of them, between neighbours by rank. Where all
// that lead to a node fail, or all from it, the node is named.
func bootstrapReach(v *verdict) {
	failed := map[[2]string]facts.Dial{} // from and to
	for i := range v.Nodes {
		n := &v.Nodes[i]
		dials, ok := n.Dials.Get()
		if !ok {
			v.unknown(on(n), n.Dials.Because())
		}
		for _, d := range dials {
			if d.Try.Failed() {
				failed[[2]string{n.Name, d.Node}] = d
			} else if !d.Try.Done {
				v.unknown(on(n), d.Try.Why)
			}
		}
	}
	const remedy = "name an interface that all nodes share in NCCL_SOCKET_IFNAME, and let TCP pass there"
	// take removes the failures to a node or from it, and returns the first of them.
	take := func(of string, to bool) (first facts.Dial) {
		for _, n := range v.Nodes {
			pair := [2]string{of, n.Name}
			if to {
				pair = [2]string{n.Name, of}
			}
			if d, ok := failed[pair]; ok {
				if delete(failed, pair); first.Node == "" {
					first = d
				}
			}
		}
		return first
	}
	for _, name := range byFailures(failed) {
		var to, from int
		for pair := range failed {
			if pair[1] == name {
				to++
			} else if pair[0] == name {
				from++
			}
		}
		others := len(v.Nodes) - 1
		at, first := on(v.node(name)), ""
		for _, n := range v.Nodes {
			if n.Name != name {
				at.places, first = append(at.places, Place{Node: n.Name}), cmp.Or(first, n.Name)
			}
		}
		switch {
		case others < 2:
		case to == others && from == others:
			d := take(name, true)
			take(name, false)
			v.fail(at, remedy, "%s cannot be reached at %s%s from any other node (%s), nor does it reach any of them", name, d.To, v.selected(name, first), d.Try.Error)
		case to == others:
			d := take(name, true)
			v.fail(at, remedy, "%s cannot be reached at %s%s from any other node: %s", name, d.To, v.selected(name, first), d.Try.Error)
		case from == others:
			d := take(name, false)
			v.fail(at, remedy, "%s reaches no other node: %s at %s: %s", name, d.Node, d.To, d.Try.Error)
		}
	}
	for _, n := range v.Nodes {
		for _, to := range v.Nodes {
			if d, ok := failed[[2]string{n.Name, to.Name}]; ok {
				v.fail(both(n.Name, to.Name), remedy, "%s cannot be reached at %s%s from %s: %s", to.Name, d.To, v.selected(to.Name, n.Name), n.Name, d.Try.Error)
			}
		}
	}
}

// selected names the setting that selects a node's address, where another node has a different one.
func (v *verdict) selected(node, other string) string {
	c := v.choice(node)
	if named := c.setUp.String(); c.setUp.Named() && named != v.choice(other).setUp.String() {
		return fmt.Sprintf(", which %s on %s selects,", c.setting("NCCL_SOCKET_IFNAME", named), node)
	}
	return ""
}

// byFailures are the nodes of connections that failed, those with the most first.
func byFailures(failed map[[2]string]facts.Dial) []string {
	count := map[string]int{}
	for pair := range failed {
		count[pair[0]]++
		count[pair[1]]++
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b)) })
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

// nameLoopback looks at nodes whose own name leads back to themselves alone, as installers of Debian and Ubuntu leave it.
func nameLoopback(n *facts.Node, v *verdict) {
	host, ok := n.HostName.Get()
	if !ok {
		v.unknown(on(n), n.HostName.Because())
		return
	}
	if len(host.Addrs) == 0 || slices.ContainsFunc(host.Addrs, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		return
	}
	env, _ := n.Process.Env.Get()
	remedy := fmt.Sprintf("put the node's address beside %s in /etc/hosts, or export GLOO_SOCKET_IFNAME with the interface that all nodes share", host.Name)
	if env["MASTER_ADDR"] == host.Name {
		v.warn(on(n), remedy+", and an address in MASTER_ADDR", "MASTER_ADDR=%[1]s, and %[1]s is %[2]s in its /etc/hosts: rank 0 listens where no other node gets to", host.Name, host.Addrs[0])
	} else if env["GLOO_SOCKET_IFNAME"] == "" {
		v.info(on(n), remedy, "%s is %s in its /etc/hosts: Gloo, and whatever else tells other nodes the address of its own name, tells them that one", host.Name, host.Addrs[0])
	}
}

// frameworks are the variables by which frameworks are told the address that they tell other nodes.
var frameworks = []string{"VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP"}

// hostIP looks at the address that vLLM and SGLang tell other nodes, which NCCL_SOCKET_IFNAME does not choose: the one that they
// are told, or else that of the way to the world.
func hostIP(n *facts.Node, v *verdict) {
	env, _ := told(n, v)
	outward, ok := n.Outward.Get()
	if !ok {
		v.unknown(on(n), n.Outward.Because())
	}
	radios, known := n.Wireless.Get()
	if !known {
		v.unknown(on(n), n.Wireless.Because())
	}
	found, _ := n.Topology.Get()
	at := func(a netip.Addr) string {
		for _, l := range found.Links {
			if slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a }) {
				return l.Name
			}
		}
		return ""
	}
	named := false
	for _, name := range frameworks {
		a, err := netip.ParseAddr(env[name])
		if err != nil {
			continue // unset, or a host name
		}
		named = true
		switch dev := at(a); {
		case dev == "" && len(found.Links) > 0:
			v.fail(on(n), "set it to an address of this node", "%s=%s is no address of the node: other nodes look for it elsewhere", name, a)
		case slices.Contains(radios, dev):
			v.warn(on(n, dev), "set it to an address of a wired interface", "%s=%s is the address of %s, a wireless interface", name, a, dev)
		}
	}
	if dev := at(outward); !named && slices.Contains(radios, dev) {
		severity := Info
		if n.Process.Serves {
			severity = Warn
		}
		v.add(severity, on(n, dev), "export VLLM_HOST_IP and SGLANG_HOST_IP with the address of a wired interface before they start", "vLLM and SGLang tell other nodes %s, of the wireless interface %s, whatever NCCL_SOCKET_IFNAME says", outward, dev)
	}
}
