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

// given are the addresses that somebody gave: link-local ones come by themselves.
func given(addrs []netip.Prefix) (some []netip.Prefix) {
	for _, a := range addrs {
		if !a.Addr().IsLinkLocalUnicast() {
			some = append(some, a)
		}
	}
	return some
}

func configured(addrs []netip.Prefix) bool { return len(given(addrs)) > 0 }

func addrNone(v *verdict) {
	for i := range v.Nodes {
		if ports, ok := rdmaPorts(&v.Nodes[i], v); ok {
			v.addrNone(&v.Nodes[i], ports)
		}
	}
	v.addrMissing()
}

// addrNone looks at RDMA ports.
func (v *verdict) addrNone(n *facts.Node, ports []topology.Port) {
	for _, p := range roce(ports) {
		v4 := slices.ContainsFunc(p.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() })
		if !v4 && !configured(p.Addrs) {
			v.info(on(n, facts.PortName(&p)), "", "%s has only the address that every interface gets: this plugin needs no other, other tools do", p.String())
		}
	}
}

// addrMissing looks at interfaces without an RDMA device that are up and have no address at all, not even the one that every
// interface gets: nothing passes over them. With a port of another node over which nothing comes either, and which shares no subnet
// with a port, they may be the two ends of one cable.
func (v *verdict) addrMissing() {
	m, _ := v.Map.Get()
	alive := v.alive(&m)
	for _, h := range v.pairs(func(*topology.Port) bool { return true }) {
		alive[h.a], alive[h.b] = true, true
	}
	var loose []string
	for i := range v.Nodes {
		for _, p := range wired(&v.Nodes[i]) {
			if e := (facts.End{Node: v.Nodes[i].Name, Port: p.Netdev}); p.Usable() && !alive[e] {
				loose = append(loose, e.String())
			}
		}
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		for _, p := range wired(n) {
			if !p.Active || len(p.Addrs) > 0 || v.hasRDMA(n.Name) {
				continue
			}
			others := slices.DeleteFunc(slices.Clone(loose), func(e string) bool { return strings.HasPrefix(e, n.Name+":") })
			if len(others) == 0 {
				continue
			}
			v.warn(on(n, p.Netdev), fmt.Sprintf("enable IPv6 on it (sysctl net.ipv6.conf.%s.disable_ipv6=0), or give it an address", p.Netdev),
				"%s is up and has no address, not even the one that every interface gets, and nothing comes over %s of other nodes either", p.Netdev, strings.Join(others, ", "))
		}
	}
}

func addrVolatile(n *facts.Node, v *verdict) {
	eachOwned(n, v, func(netdev string, files []facts.File) {
		if !slices.ContainsFunc(files, func(f facts.File) bool { return !f.Gone }) {
			v.warn(on(n, netdev), "write a file for it in /etc/netplan", "%s is configured by %s alone, which is gone at the next boot", netdev, files[0].Path)
		}
	})
}

func addrOwnerClash(n *facts.Node, v *verdict) {
	eachOwned(n, v, func(netdev string, files []facts.File) {
		var owners, paths []string
		for _, f := range files {
			paths = append(paths, f.Path)
			if !slices.Contains(owners, f.Owner) {
				owners = append(owners, f.Owner)
			}
		}
		if len(owners) > 1 {
			v.warn(on(n, netdev), "keep one of them, and remove "+netdev+" from the others", "%s is configured by %s: %s", netdev, strings.Join(owners, " and "), strings.Join(paths, ", "))
		}
	})
}

// eachOwned calls f with each mesh interface that files configure.
func eachOwned(n *facts.Node, v *verdict, f func(netdev string, files []facts.File)) {
	owners, ok := n.Owners.Get()
	if !ok {
		v.unknown(on(n), n.Owners.Because())
		return
	}
	ports := meshPorts(n, v)
	for _, netdev := range slices.Sorted(maps.Keys(owners)) {
		if slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Netdev == netdev }) {
			f(netdev, owners[netdev])
		}
	}
}

// addrDuplicate leaves out what every machine may have for itself: loopback, link-local
// addresses, and bridges to its own containers.
func addrDuplicate(v *verdict) {
	owner := map[netip.Addr][]Place{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		found, ok := n.Topology.Get()
		if !ok {
			v.unknown(on(n), n.Topology.Because())
			continue
		}
		for _, l := range found.Links {
			if l.Loopback || l.Kind == "bridge" {
				continue
			}
			for _, a := range given(l.Addrs) {
				owner[a.Addr()] = append(owner[a.Addr()], Place{n.Name, l.Name})
			}
		}
	}
	var twice []netip.Addr
	for a, at := range owner {
		if len(at) > 1 {
			twice = append(twice, a)
		}
	}
	slices.SortFunc(twice, netip.Addr.Compare)
	for _, a := range twice {
		first := owner[a][0]
		for _, p := range owner[a][1:] {
			v.fail(spot{places: []Place{p}}, fmt.Sprintf("give %s of %s another address", p.Port, p.Node), "%s is the address of %s too", a, first)
		}
	}
}

func subnetShared(n *facts.Node, v *verdict) {
	ports := meshPorts(n, v)
	in := map[netip.Prefix][]string{}
	for _, p := range ports {
		for _, a := range p.Addrs {
			if subnet := a.Masked(); a.Addr().Is4() && !slices.Contains(in[subnet], facts.PortName(&p)) {
				in[subnet] = append(in[subnet], facts.PortName(&p))
			}
		}
	}
	var subnets []netip.Prefix
	for s, names := range in {
		if len(names) > 1 {
			subnets = append(subnets, s)
		}
	}
	slices.SortFunc(subnets, comparePrefix)
	for _, s := range subnets {
		v.info(on(n, in[s]...), "", "%s are all in %s: this plugin validates its paths, other tools confuse the ports", strings.Join(in[s], ", "), s)
	}
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func subnetOverlap(n *facts.Node, v *verdict) {
	ports := meshPorts(n, v)
	routes, ok := n.Routes.Get()
	if !ok {
		v.unknown(on(n), n.Routes.Because())
		return
	}
	mesh := func(dev string) bool {
		return slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Netdev == dev })
	}
	for _, p := range ports {
		for _, a := range given(p.Addrs) {
			for _, r := range routes {
				if r.Dst.Overlaps(a.Masked()) && !mesh(r.Dev) && !r.Dst.Addr().IsLinkLocalUnicast() {
					v.warn(on(n, facts.PortName(&p)), "use another address range for the cables", "%s has %s, and %s is routed over %s", p.Netdev, a, r.Dst, r.Dev)
				}
			}
		}
	}
}
