package topology

import (
	"net/netip"
	"slices"
)

// BootstrapAddrs returns the addresses at which a peer may reach this process over TCP, most preferred first and each
// once: those of the bootstrap interface, then the IPv4 addresses of mesh interfaces, then those of other interfaces,
// then global IPv6 addresses.
//
// The bootstrap interface is the one that NCCL takes: the first that filter names, else the first that neither is in
// the mesh (mesh has the names of its interfaces) nor leads to containers of this host. Family 4 or 6 restricts its
// addresses; 0 does not. Interfaces outside the mesh that filter excludes are not used at all. Link-local IPv6
// addresses mean nothing without an interface and are never returned; 169.254/16 comes last in its group; loopback
// only when it is named or there is nothing else.
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

// addrsOf returns the addresses of the links in a family, 0 for both, that mean something to another machine;
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
