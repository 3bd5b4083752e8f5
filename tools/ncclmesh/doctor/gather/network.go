package gather

import (
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// kernelRoutes are the routes of all tables in the network namespace of the calling thread,
// but for default routes and those that the kernel keeps for itself.
func kernelRoutes() ([]facts.Route, error) {
	names := map[int]string{}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	all := []facts.Route{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.Dst == nil || r.Type != unix.RTN_UNICAST || r.Table == unix.RT_TABLE_LOCAL {
				continue
			}
			addr, ok := netip.AddrFromSlice(r.Dst.IP)
			bits, size := r.Dst.Mask.Size()
			if !ok || size == 0 || bits == 0 {
				continue
			}
			all = append(all, facts.Route{Dst: netip.PrefixFrom(addr.Unmap(), bits), Dev: names[r.LinkIndex]})
		}
	}
	return all, nil
}
