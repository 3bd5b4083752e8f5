package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// routeWrong looks at where the kernel sends packets for addresses of other nodes in a subnet of the node's own interface.
func routeWrong(v *verdict) {
	for i := range v.Nodes {
		n := &v.Nodes[i]
		lookups, ok := n.Lookups.Get()
		if !ok {
			v.unknown(on(n), n.Lookups.Because())
			continue
		}
		for _, w := range lookups {
			near := linksTo(n, w.Addr)
			if len(near) == 0 || slices.Contains(near, w.Dev) {
				continue
			}
			remedy := fmt.Sprintf("find the route or the rule and delete it: ip route get %[1]s; ip route show match %[1]s; ip rule", w.Addr)
			if w.Try.Failed() {
				v.fail(on(n, near...), remedy, "packets to %s of %s go nowhere, and not out of %s: %s", w.Addr, w.Node, strings.Join(near, " or "), dropped(w.Try))
			} else {
				v.warn(on(n, near...), remedy, "packets to %s of %s go out of %s, and not out of %s, which is in its subnet", w.Addr, w.Node, w.Dev, strings.Join(near, " or "))
			}
		}
	}
}

// dropped is why the kernel has no route: the error that a route of such a type is for.
func dropped(t facts.Try) string {
	switch syscall.Errno(t.Errno) {
	case syscall.EINVAL:
		return "a blackhole route"
	case syscall.EHOSTUNREACH:
		return "an unreachable route"
	case syscall.EACCES:
		return "a prohibit route"
	case syscall.ENETUNREACH:
		return "no route"
	}
	return t.Error
}

// linksTo are the interfaces that are up in the smallest subnet that an address is in.
func linksTo(n *facts.Node, a netip.Addr) (names []string) {
	found, _ := n.Topology.Get()
	bits := -1
	for _, l := range found.Links {
		for _, p := range l.Addrs {
			if !l.Up || !l.Carrier || l.Loopback || !p.Contains(a) || p.Bits() < bits {
				continue
			}
			if p.Bits() > bits {
				names, bits = nil, p.Bits()
			}
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

// neighbourWrong holds the hardware addresses that nodes send to over cables beside those of the interfaces that have the
// addresses. Where connections come about all the same, something between the two knows better.
func neighbourWrong(v *verdict) {
	type owner struct {
		node *facts.Node
		link topology.Link
	}
	owners := map[netip.Addr][]owner{}
	for i := range v.Nodes {
		found, _ := v.Nodes[i].Topology.Get()
		for _, l := range found.Links {
			for _, a := range l.Addrs {
				if !l.Loopback && !a.Addr().IsLinkLocalUnicast() { // which mean something on one link alone
					owners[a.Addr()] = append(owners[a.Addr()], owner{&v.Nodes[i], l})
				}
			}
		}
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		entries, ok := n.Neighbour.Get()
		if !ok {
			v.unknown(on(n), n.Neighbour.Because())
			continue
		}
		ports := meshPorts(n, v)
		lookups, _ := n.Lookups.Get()
		for _, e := range entries {
			o := owners[e.Addr]
			cable := slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Netdev == e.Dev })
			passes := slices.ContainsFunc(lookups, func(w facts.Lookup) bool { return w.Addr == e.Addr && w.Dial.OK() })
			if !cable || passes || len(o) != 1 || o[0].node == n { // addr-duplicate reports several
				continue
			}
			found, _ := o[0].node.Topology.Get()
			own := slices.ContainsFunc(found.Links, func(l topology.Link) bool { return l.MAC == e.MAC }) // any interface of a node answers for all
			switch {
			case e.MAC == o[0].link.MAC, !e.Permanent && own:
			case e.Permanent:
				v.fail(on(n, e.Dev), fmt.Sprintf("run ip neigh del %s dev %s, and find out what put it there", e.Addr, e.Dev), "%s sends what is for %s of %s to %s, by an entry that somebody made: %s has %s",
					e.Dev, e.Addr, o[0].node.Name, mac(e.MAC), o[0].link.Name, mac(o[0].link.MAC))
			default:
				v.warn(on(n, e.Dev), fmt.Sprintf("find the machine with %s, and give it another address", mac(e.MAC)), "%s answers for %s of %s on %s: %s has %s",
					mac(e.MAC), e.Addr, o[0].node.Name, e.Dev, o[0].link.Name, mac(o[0].link.MAC))
			}
		}
	}
}

func mac(m [6]byte) string { return net.HardwareAddr(m[:]).String() }
