package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ncclmesh/handshake"
)

// Tier ranks the reasons to try a candidate; lower tiers are tried first.
type Tier uint8

const (
	TierSubnet    Tier = 0 // addresses in one subnet, with the preferred RoCE version; or one InfiniBand subnet
	TierLinkLocal Tier = 1 // link-local IPv6 addresses that are on both interfaces, preferred RoCE version
	TierBare      Tier = 2 // link-local default GIDs whose address is not on the interface, preferred RoCE version
	TierOther     Tier = 3 // the other RoCE version, for any of these reasons
)

// Candidate is a local and a remote port that may reach each other, and the GIDs to try it with.
type Candidate struct {
	Local, Remote int // indices into the two lists of ports
	LocalGID      int // index into the local port's GIDs
	RemoteGID     int // index into the remote port's Addrs
	Tier          Tier
	Why           string // the reason, for log lines
}

// Describe returns the description of the ports that is sent to peers, one entry for each and in their order, with the
// addresses that the policy allows, best first. A port that is not active has no addresses. Addresses in 127.0.0.0/8
// and ::1, which lead to no other machine, are included only if no port has another address. The caller fills in MTU
// and MaxMsgSize, because only verbs reports these.
func Describe(ports []Port, pol GIDPolicy) []handshake.Port {
	described := make([]handshake.Port, 0, len(ports))
	far := slices.ContainsFunc(ports, func(p Port) bool {
		return p.Active && slices.ContainsFunc(p.RankGIDs(pol), func(g Address) bool { return !g.Addr.Unmap().IsLoopback() })
	})
	for i := range min(len(ports), handshake.MaxPorts) {
		p := &ports[i]
		h := handshake.Port{
			Index: uint8(i), Device: clip(p.Device), Num: p.Num, Netdev: clip(p.Netdev), LinkLayer: p.LinkLayer, LID: p.LID,
			NetdevMTU: uint32(max(p.NetdevMTU, 0)), SpeedMbps: uint32(p.Mbps()),
		}
		for _, g := range p.RankGIDs(pol) {
			if !p.Active || len(h.Addrs) == maxAddrs {
				break
			}
			if far && g.Addr.Unmap().IsLoopback() {
				continue
			}
			h.Addrs = append(h.Addrs, handshake.PortAddr{
				Addr: g.Addr, GIDIndex: uint16(g.Index), GIDType: uint8(g.Type), PrefixLen: uint8(max(g.PrefixLen, 0)),
			})
		}
		described = append(described, h)
	}
	return described
}

// Far returns a peer's ports without their loopback addresses, for a peer on another machine.
func Far(peer []handshake.Port) []handshake.Port {
	loopback := func(a handshake.PortAddr) bool { return a.Addr.Unmap().IsLoopback() }
	if !slices.ContainsFunc(peer, func(p handshake.Port) bool { return slices.ContainsFunc(p.Addrs, loopback) }) {
		return peer
	}
	far := slices.Clone(peer)
	for i := range far {
		far[i].Addrs = slices.DeleteFunc(slices.Clone(far[i].Addrs), loopback)
	}
	return far
}

// maxAddrs limits the description of a port with very many addresses.
const maxAddrs = min(16, handshake.MaxPortAddrs)

func clip(name string) string { return name[:min(len(name), handshake.MaxName)] }

// Candidates pairs ports of this node with a peer's, in the order in which to try them: by tier, then the smallest
// subnet first, then so that the first few use as many different ports as possible. A pair of ports occurs at most once
// in each tier. Both interfaces must have the other's address in their own subnet, so that the longer prefix decides if
// the two lengths differ.
//
// If the remote ports are this node's own, in this process or another, each port is paired only with itself.
func Candidates(local []Port, remote []handshake.Port, pol GIDPolicy) []Candidate {
	ranked := make([][]int, len(local))
	for i := range local {
		if local[i].Active {
			ranked[i] = local[i].rank(pol)
		}
	}
	if own := ownPorts(local, remote, ranked); len(own) > 0 {
		return own
	}
	var found []reason
	for i := range local {
		for j := range remote {
			if local[i].LinkLayer != remote[j].LinkLayer {
				continue
			}
			for _, r := range reasons(local[i].GIDs, ranked[i], remote[j].Addrs, pol) {
				r.Local, r.Remote = i, j
				found = append(found, r)
			}
		}
	}
	return spread(found, len(local), len(remote))
}

// reason is a candidate with the values that order it among others: the size of the subnet, and the two addresses.
type reason struct {
	Candidate
	bare     bool // an interface does not have the address
	hostBits int
	low, hi  netip.Addr
}

// reasons returns the best reason of each tier to try a pair of ports, given the local GIDs to consider. Both sides
// find the same best reason if they prefer the same address family.
func reasons(gids []Address, allowed []int, addrs []handshake.PortAddr, pol GIDPolicy) []reason {
	var best []reason
	for _, lg := range allowed {
		for rg, addr := range addrs {
			tier, bare, hostBits, ok := match(gids[lg], addr, pol)
			if !ok {
				continue
			}
			r := reason{Candidate{LocalGID: lg, RemoteGID: rg, Tier: tier}, bare, hostBits, gids[lg].Addr, addr.Addr}
			if r.hi.Less(r.low) {
				r.low, r.hi = r.hi, r.low
			}
			switch i := slices.IndexFunc(best, func(b reason) bool { return b.Tier == tier }); {
			case i < 0:
				best = append(best, r)
			case compareReasons(r, best[i], pol) < 0:
				best[i] = r
			}
		}
	}
	for i := range best {
		r := &best[i]
		r.Why = explainMatch(gids[r.LocalGID], addrs[r.RemoteGID], r.bare, r.hostBits)
	}
	return best
}

func compareReasons(a, b reason, pol GIDPolicy) int {
	return cmp.Or(
		cmp.Compare(a.Tier, b.Tier),
		first(!a.bare, !b.bare),
		first(a.low.Is4In6() != pol.wantsV6(), b.low.Is4In6() != pol.wantsV6()),
		cmp.Compare(a.hostBits, b.hostBits),
		a.low.Compare(b.low),
		a.hi.Compare(b.hi),
	)
}

// Answer returns the GID, as an index into p.GIDs, with which to answer a peer that has chosen this port and an address
// of its own: the other half of the peer's candidate. It need not be one of Candidates, because the peer's policy may
// prefer another pair.
func (p *Port) Answer(addr handshake.PortAddr, pol GIDPolicy) (int, bool) {
	allowed := p.rank(pol)
	for _, i := range allowed { // the peer is this node
		if p.GIDs[i].Addr == addr.Addr && uint8(p.GIDs[i].Type) == addr.GIDType {
			return i, true
		}
	}
	found := reasons(p.GIDs, allowed, []handshake.PortAddr{addr}, pol)
	if len(found) == 0 {
		return 0, false
	}
	return slices.MinFunc(found, func(a, b reason) int { return compareReasons(a, b, pol) }).LocalGID, true
}

// match reports whether a local GID may reach an address of a peer. bare reports that an interface does not have the
// address. hostBits is the size of the subnet that contains both. RoCE v1's default GID needs no address on an
// interface.
func match(g Address, r handshake.PortAddr, pol GIDPolicy) (tier Tier, bare bool, hostBits int, ok bool) {
	a, b := g.Addr.Unmap(), r.Addr.Unmap()
	if uint8(g.Type) != r.GIDType || a.BitLen() != b.BitLen() || a == b || a.IsLoopback() || b.IsLoopback() {
		return 0, false, 0, false
	}
	linkLocal := a.Is6() && a.IsLinkLocalUnicast() && b.IsLinkLocalUnicast()
	bits := max(g.PrefixLen, int(r.PrefixLen))
	bare = g.Type != GIDTypeIB && !(linkLocal && g.Type == GIDTypeRoCEv1) && (g.PrefixLen < 0 || r.PrefixLen == 0)
	switch {
	case g.Type == GIDTypeIB:
		bits = 64 // the subnet prefix
	case linkLocal && bare:
		tier, bits = TierBare, 64
	case linkLocal:
		tier, bits = TierLinkLocal, 64
	case bare:
		return 0, false, 0, false
	}
	if !pol.prefers(g.Type) {
		tier = TierOther
	}
	subnet, err := a.Prefix(bits)
	return tier, bare, a.BitLen() - bits, err == nil && subnet.Contains(b)
}

// explainMatch returns the reason for a match as text.
func explainMatch(g Address, r handshake.PortAddr, bare bool, hostBits int) string {
	a, b := g.Addr.Unmap(), r.Addr.Unmap()
	subnet, _ := a.Prefix(a.BitLen() - hostBits)
	switch {
	case g.Type == GIDTypeIB:
		return fmt.Sprintf("both ports are in InfiniBand subnet %s", subnet)
	case bare:
		return fmt.Sprintf("%s and %s are default GIDs, but an interface does not have the address, %s", a, b, g.Type)
	case a.Is6() && a.IsLinkLocalUnicast():
		return fmt.Sprintf("%s and %s are link-local, %s", a, b, g.Type)
	}
	return fmt.Sprintf("%s and %s are in %s, %s", a, b, subnet, g.Type)
}

// spread orders candidates. Among equally good ones the next is always one whose ports have been used least.
func spread(found []reason, locals, remotes int) []Candidate {
	slices.SortStableFunc(found, func(a, b reason) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.hostBits, b.hostBits))
	})
	usedL, usedR := make([]int, locals), make([]int, remotes)
	ordered := make([]Candidate, 0, len(found))
	for len(found) > 0 {
		best, uses := 0, 0
		for i, r := range found {
			if r.Tier != found[0].Tier || r.hostBits != found[0].hostBits {
				break
			}
			if u := usedL[r.Local] + usedR[r.Remote]; i == 0 || u < uses {
				best, uses = i, u
			}
		}
		c := found[best].Candidate
		usedL[c.Local]++
		usedR[c.Remote]++
		ordered = append(ordered, c)
		found = slices.Delete(found, best, best+1)
	}
	return ordered
}

// ownPorts pairs each port with itself if the peer's ports are this node's own.
func ownPorts(local []Port, remote []handshake.Port, ranked [][]int) []Candidate {
	var own []Candidate
	for i := range local {
		for j := range remote {
			l, r := &local[i], &remote[j]
			if l.Device != r.Device || l.Num != r.Num || l.Netdev != r.Netdev {
				continue
			}
			if lg, rg, ok := sameGID(l.GIDs, ranked[i], r.Addrs); ok {
				own = append(own, Candidate{Local: i, Remote: j, LocalGID: lg, RemoteGID: rg, Why: "the peer is this node"})
			}
		}
	}
	return own
}

// sameGID returns the best GID that both ports have, if they are the same port. Equal private addresses do not prove
// that, because two nodes may use the same ones. Link-local IPv6 addresses and InfiniBand GIDs do, because they are
// made from the adapter's own number.
func sameGID(gids []Address, ranked []int, addrs []handshake.PortAddr) (lg, rg int, ok bool) {
	shared, differ := false, false
	for _, a := range addrs {
		if g := a.Addr; a.GIDType == handshake.GIDTypeIB || g.Is6() && g.IsLinkLocalUnicast() {
			has := slices.ContainsFunc(gids, func(g Address) bool { return g.Addr == a.Addr })
			shared, differ = shared || has, differ || !has
		}
	}
	if differ && !shared {
		return 0, 0, false
	}
	for _, lg := range ranked {
		for rg, a := range addrs {
			if a.Addr == gids[lg].Addr && a.GIDType == uint8(gids[lg].Type) {
				return lg, rg, true
			}
		}
	}
	return 0, 0, false
}

// Explain returns a text for users with the addresses of both nodes, port by port, for the error when there is no
// candidate.
func Explain(local []Port, remote []handshake.Port, pol GIDPolicy) string {
	return fmt.Sprintf("this node has %s; the peer has %s", listAddrs(Describe(local, pol)), listAddrs(remote))
}

func listAddrs(ports []handshake.Port) string {
	if len(ports) == 0 {
		return "no port"
	}
	var list []string
	for _, p := range ports {
		name := (&Port{Device: p.Device, Num: p.Num, Netdev: p.Netdev}).String()
		var addrs []string
		for _, a := range p.Addrs {
			addr := a.Addr.Unmap().String()
			if a.PrefixLen > 0 {
				addr = fmt.Sprintf("%s/%d", addr, a.PrefixLen)
			}
			if !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
		if len(addrs) == 0 {
			addrs = []string{"inactive or without an address"}
		}
		list = append(list, name+" "+strings.Join(addrs, " "))
	}
	return strings.Join(list, ", ")
}
