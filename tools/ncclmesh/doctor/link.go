package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// meshPorts are the ports of a node that may have a cable: those of RDMA, and interfaces alone.
func meshPorts(n *facts.Node, v *verdict) []topology.Port {
	ports, _ := rdmaPorts(n, v)
	return append(slices.Clone(ports), wired(n)...)
}

// masters are kinds of interfaces that take what arrives at their ports for themselves, and how people call them.
var masters = map[string]string{"bridge": "bridge", "openvswitch": "Open vSwitch bridge", "bond": "bond", "team": "team"}

// portEnslaved looks at ports of a bridge or the like. An RDMA device of a bond has the bond itself for its interface.
func portEnslaved(n *facts.Node, v *verdict) {
	ports, _ := rdmaPorts(n, v)
	found, _ := n.Topology.Get()
	for _, p := range ports {
		link := linkOf(n, p.Netdev)
		if link == nil || link.Master == 0 {
			continue
		}
		i := slices.IndexFunc(found.Links, func(l topology.Link) bool { return l.Index == link.Master })
		if i < 0 || masters[found.Links[i].Kind] == "" {
			continue
		}
		master, has := &found.Links[i], ""
		if addrs := given(master.Addrs); len(addrs) > 0 {
			has = fmt.Sprintf(", which has the address %s", addrs[0])
		}
		v.fail(on(n, facts.PortName(&p)), fmt.Sprintf("take it out (ip link set %s nomaster), and give it an address of its own", p.Netdev),
			"%s is a port of the %s %s%s: packets that arrive at it go there, and not to the plugin", p.String(), masters[master.Kind], master.Name, has)
	}
}

// A port flaps that has changed so often since boot, and more often than once in an hour; reboots of the node at the other end
// are fewer.
const manyFlaps = 20

func portFlapping(n *facts.Node, v *verdict) {
	changes, ok := n.Carrier.Get()
	if !ok {
		v.unknown(on(n), n.Carrier.Because())
		return
	}
	up, ok := n.Uptime.Get()
	if !ok {
		v.unknown(on(n), n.Uptime.Because())
	}
	for _, p := range meshPorts(n, v) {
		const remedy = "reseat the cable at both ends, or replace it; then read the kernel's log: journalctl -k -g 'link|carrier'"
		switch f := changes[p.Netdev]; {
		case p.Netdev == "":
		case f.Now > 1: // once is a cable that somebody pulls, or plugs in
			v.warn(on(n, p.Netdev), remedy, "%s gained or lost its link %d times while it was looked at, and %d times in all", p.Netdev, f.Now, f.Total)
		case ok && f.Total >= manyFlaps && float64(f.Total) > up.Hours():
			v.warn(on(n, p.Netdev), remedy, "%s gained or lost its link %d times in %s", p.Netdev, f.Total, since(up))
		}
	}
}

// since is a time for people.
func since(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f hours", d.Hours())
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	}
	return fmt.Sprintf("%.0f seconds", d.Seconds())
}

// portShaped looks at interfaces alone: what RDMA sends passes no queueing discipline of the kernel.
func portShaped(n *facts.Node, v *verdict) {
	shapers, ok := n.Shapers.Get()
	if !ok {
		v.unknown(on(n), n.Shapers.Because())
		return
	}
	for _, p := range wired(n) {
		var kinds []string
		for _, s := range shapers {
			if s.Dev == p.Netdev && !slices.Contains(kinds, s.Kind) {
				kinds = append(kinds, s.Kind)
			}
		}
		if len(kinds) > 0 {
			v.warn(on(n, p.Netdev), fmt.Sprintf("look at it (tc qdisc show dev %[1]s), and remove it: tc qdisc del dev %[1]s root", p.Netdev), "%s has the queueing discipline %s, which holds back or drops what is sent", p.Netdev, strings.Join(kinds, " and "))
		}
	}
}
