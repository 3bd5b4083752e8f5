package gather

import (
	"net/netip"
	"os"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// network is the node's ports, interfaces, routes, and where others may reach it.
func (l *looker) network() {
	n := l.node
	found, err := topology.Discover(topology.Source{Sysfs: l.Sysfs, Links: l.Links})
	if err != nil {
		n.Topology = facts.Unknown[topology.Node](err.Error())
		n.Wireless = facts.Unknown[[]string](err.Error())
		n.Bootstrap = facts.Unknown[[]netip.Addr](err.Error())
	} else {
		n.Topology = facts.Known(*found)
		n.Wireless = facts.Known(l.wireless(found.Links))
		n.Bootstrap = l.bootstrap(found)
	}
	n.Routes = facts.Of(l.Routes())
	n.Neighbour = facts.Of(l.Neighbours())
	n.Shapers = facts.Of(l.Shapers())
	n.Outward = facts.Of(l.Outward())
	n.Functions = l.functions()
}

// wireless are the interfaces that are radios.
func (l *looker) wireless(links []topology.Link) []string {
	radios := []string{}
	for _, link := range links {
		for _, mark := range []string{"phy80211", "wireless"} {
			if _, err := os.Stat(l.sys("class/net", link.Name, mark)); err == nil {
				radios = append(radios, link.Name)
				break
			}
		}
	}
	return radios
}

// bootstrap are the addresses at which NCCL makes the ranks meet, by the judged environment.
func (l *looker) bootstrap(found *topology.Node) facts.Fact[[]netip.Addr] {
	env, ok := l.node.Process.Env.Get()
	if !ok {
		return facts.Unknown[[]netip.Addr](l.node.Process.Env.Because())
	}
	filter, err := topology.ParseInterfaces(env["NCCL_SOCKET_IFNAME"])
	if err != nil {
		return facts.Unknown[[]netip.Addr](err.Error())
	}
	family := map[string]int{"AF_INET": 4, "AF_INET6": 6}[env["NCCL_SOCKET_FAMILY"]]
	mesh := map[string]bool{}
	for _, p := range found.Ports {
		mesh[p.Netdev] = true
	}
	return facts.Known(topology.BootstrapAddrs(found.Links, filter, family, mesh))
}

// flaps are the changes of the carriers of all interfaces, some of them since before.
func (l *looker) flaps(before map[string]uint64) facts.Fact[map[string]facts.Flaps] {
	now, err := l.Carrier()
	if err != nil {
		return facts.Unknown[map[string]facts.Flaps](err.Error())
	}
	all := map[string]facts.Flaps{}
	for netdev, total := range now {
		f := facts.Flaps{Total: total}
		if at, ok := before[netdev]; ok {
			f.Now = rise(at, total)
		}
		all[netdev] = f
	}
	return facts.Known(all)
}
