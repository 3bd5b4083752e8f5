package topology

import (
	"cmp"
	"net/netip"
	"slices"
)

// GIDPolicy is the user's selection of GIDs.
type GIDPolicy struct {
	Index  int          // use only this entry of the table; -1: choose
	Family int          // preferred address family, 4 or 6; 0 means 4
	Range  netip.Prefix // use only addresses in this range; the zero value allows all
	RoCE   int          // preferred version, 1 or 2; 0 means 2
}

// AnyGID is the default policy.
var AnyGID = GIDPolicy{Index: -1, Family: 4, RoCE: 2}

func (pol GIDPolicy) prefers(t GIDType) bool {
	return t != GIDTypeRoCEv1 && t != GIDTypeRoCEv2 || (t == GIDTypeRoCEv1) == (pol.RoCE == 1)
}

func (pol GIDPolicy) wantsV6() bool { return pol.Family == 6 }

// RankGIDs returns the GIDs that the policy allows, best first. On Ethernet the order is: the preferred RoCE version
// before the other; addresses of the interface before its link-local ones, those before RoCE v1's default GID, which
// needs no address, and GIDs whose address is on no interface last, because the network may not resolve that address;
// the port's own interface before VLANs on it; then the preferred family. On InfiniBand, where ports are addressed by
// LID, the table's order is kept and only Range applies.
func (p *Port) RankGIDs(pol GIDPolicy) []Address {
	var ranked []Address
	for _, i := range p.rank(pol) {
		ranked = append(ranked, p.GIDs[i])
	}
	return ranked
}

// rank returns the result of RankGIDs as indices into p.GIDs.
func (p *Port) rank(pol GIDPolicy) []int {
	var ranked []int
	for i, g := range p.GIDs {
		forced := pol.Index >= 0 && (g.Type == GIDTypeRoCEv1 || g.Type == GIDTypeRoCEv2)
		switch {
		case forced && g.Index != pol.Index:
		case !forced && pol.Range.IsValid() && !pol.Range.Contains(g.Addr.Unmap()):
		default:
			ranked = append(ranked, i)
		}
	}
	slices.SortStableFunc(ranked, func(a, b int) int { return p.compareGIDs(p.GIDs[a], p.GIDs[b], pol) })
	return ranked
}

func (p *Port) compareGIDs(a, b Address, pol GIDPolicy) int {
	if a.Type == GIDTypeIB || b.Type == GIDTypeIB {
		return cmp.Compare(a.Index, b.Index)
	}
	return cmp.Or(
		first(pol.prefers(a.Type), pol.prefers(b.Type)),
		cmp.Compare(a.reach(), b.reach()),
		first(a.Netdev == p.Netdev, b.Netdev == p.Netdev),
		first(a.isV6() == pol.wantsV6(), b.isV6() == pol.wantsV6()),
		cmp.Compare(a.Index, b.Index),
	)
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

const (
	reachSubnet    = iota // an address of the interface
	reachLinkLocal        // a link-local address of the interface, 169.254/16 or fe80::/64
	reachMAC              // RoCE v1's default GID, which is made from the MAC address and needs no IP stack
	reachNone             // an address that the interface does not have
)

func (g Address) reach() int {
	local := g.Addr.Unmap().IsLinkLocalUnicast()
	switch {
	case g.PrefixLen >= 0 && !local:
		return reachSubnet
	case g.PrefixLen >= 0:
		return reachLinkLocal
	case local && g.Type == GIDTypeRoCEv1:
		return reachMAC
	}
	return reachNone
}

func (g Address) isV6() bool { return !g.Addr.Is4In6() }
