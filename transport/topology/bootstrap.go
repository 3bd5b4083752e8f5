package topology

import (
	"net/netip"
	"slices"
)

// BootstrapAddrs returns the addresses at which a peer may reach this process over TCP, most preferred first and
// without duplicates: those of the bootstrap interface, then the IPv4 addresses of mesh interfaces, then those of other
// interfaces, then global IPv6 addresses.
//
// The bootstrap interface is the one that NCCL uses: the first that filter names, or else the first that is not in the
// mesh (mesh contains the names of its interfaces) and does not lead to containers of this host. Family 4 or 6
// restricts its addresses; 0 does not. Interfaces outside the mesh that filter excludes are not used. Link-local IPv6
// addresses are never returned, because they have no meaning without an interface. 169.254/16 comes last in its group.
// Loopback addresses are returned only if the interface is named or there are no others.
func BootstrapAddrs(links []Link, filter IfFilter, family int, mesh map[string]bool) []netip.Addr {
	named := filter.list.named()
	var first, meshed, others, lo []Link
	for _, l := range links {
		outward := !l.Loopback && !hostLocal(l.Name)
		bootstrap := filter.Match(l.Name) && (named || outward && !mesh[l.Name])
		switch {
		case !l.Up || !l.Carrier:
		case bootstrap && len(first) == 0 && len(addrsOf([]Link{l}, family)) > 0:
			first = []Link{l}
		case l.Loopback:
			lo = append(lo, l)
		case mesh[l.Name]:
			meshed = append(meshed, l)
		case bootstrap:
			others = append(others, l)
		}
	}
	all := slices.Concat(first, meshed, others)
	addrs := slices.Concat(addrsOf(first, family), addrsOf(meshed, 4), addrsOf(others, 4), addrsOf(all, 6))
	if len(addrs) == 0 {
		addrs = addrsOf(lo, family)
	}
	seen := make(map[netip.Addr]bool, len(addrs))
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
}

// addrsOf returns the addresses of the links in a family, 0 for both, that have a meaning on another machine;
// link-local ones last.
func addrsOf(links []Link, family int) []netip.Addr {
	var global, local []netip.Addr
	for _, l := range links {
		for _, p := range l.Addrs {
			a := p.Addr().Unmap()
			switch {
			case family == 4 && !a.Is4(), family == 6 && a.Is4():
			case !a.IsLinkLocalUnicast():
				global = append(global, a)
			case a.Is4():
				local = append(local, a)
			}
		}
	}
	return append(global, local...)
}
