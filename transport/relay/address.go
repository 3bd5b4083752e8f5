package relay

import (
	"fmt"
	"net/netip"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// peerPort returns a port of a session's peer as the peer described it, or only its index if the peer did not.
func (r *Relay) peerPort(s session, port uint8) handshake.Port {
	for _, p := range r.portsOf(s) {
		if p.Index == port {
			return p
		}
	}
	return handshake.Port{Index: port}
}

// hopAddrs returns the addresses of a hop between a port of this node and one of a peer. If to is not zero, it is used
// as the peer's address. Both ends choose by the same rules.
func (r *Relay) hopAddrs(port uint8, peer handshake.Port, to netip.Addr) (topology.Address, netip.Addr, error) {
	own := r.cfg.Ports[port]
	now := own.Now()
	if to.IsValid() && !to.IsUnspecified() {
		addr := handshake.PortAddr{Addr: to, GIDType: uint8(topology.GIDTypeNone)}
		if i := slices.IndexFunc(peer.Addrs, func(a handshake.PortAddr) bool { return a.Addr == to }); i >= 0 {
			addr = peer.Addrs[i]
		}
		if i, ok := now.Answer(addr, r.cfg.GIDs); ok {
			return now.GIDs[i], to, nil
		}
		if a, ok := nearestAddr(now, to); ok && own.Kind() == lane.TCP {
			return a, to, nil
		}
		return topology.Address{}, to, fmt.Errorf("%s has no address that reaches %v", now.Short(), to.Unmap())
	}
	for _, c := range topology.Candidates([]topology.Port{*now}, []handshake.Port{peer}, r.cfg.GIDs) {
		return now.GIDs[c.LocalGID], peer.Addrs[c.RemoteGID].Addr, nil
	}
	for _, a := range peer.Addrs {
		if from, ok := nearestAddr(now, a.Addr); ok && own.Kind() == lane.TCP {
			return from, a.Addr, nil
		}
	}
	return topology.Address{}, netip.Addr{}, fmt.Errorf("%s and %s have no addresses that reach each other", now.Short(), lane.PeerPort(peer).Short())
}

// nearestAddr returns the address of an interface from which TCP is most likely to reach another address: one whose
// subnet contains it, or else a link-local one for a link-local one, or else any of its family.
func nearestAddr(p *topology.Port, to netip.Addr) (best topology.Address, ok bool) {
	to = to.Unmap()
	most := 0
	for _, g := range p.GIDs {
		own, worth := g.Addr.Unmap(), 1
		if own.BitLen() != to.BitLen() || own.IsLoopback() != to.IsLoopback() {
			continue
		}
		subnet, err := own.Prefix(max(g.PrefixLen, 0))
		switch {
		case own.IsLinkLocalUnicast() != to.IsLinkLocalUnicast():
		case err == nil && g.PrefixLen > 0 && subnet.Contains(to):
			worth = 3
		case own.IsLinkLocalUnicast():
			worth = 2
		}
		if worth > most {
			best, most = g, worth
		}
	}
	return best, most > 0
}
