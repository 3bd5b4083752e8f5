package doctor

import (
	"net/netip"
	"slices"

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

func bootstrapReach(v *verdict) {
	for i := range v.Nodes {
		n := &v.Nodes[i]
		dials, ok := n.Dials.Get()
		if !ok {
			v.unknown(on(n), n.Dials.Because())
			continue
		}
		passed := map[string]bool{}
		for _, d := range dials {
			passed[d.Node] = passed[d.Node] || d.Try.OK()
		}
		for _, d := range dials {
			if d.Try.Failed() && !passed[d.Node] {
				v.fail(both(n.Name, d.Node), "name an interface that all nodes share in NCCL_SOCKET_IFNAME, and let TCP pass there", "%s cannot be reached from %s: %s", d.Node, n.Name, d.Try.Error)
				passed[d.Node] = true // once for each
			}
		}
	}
}
