package path

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/bundle"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// PlanFor finds this side's half of each lane that the sender offers.
func (f *Finder) PlanFor(b *bundle.Bundle, offered []handshake.Lane) ([]lane.Plan, error) {
	if len(offered) == 0 || len(offered) > lane.MaxParts {
		return nil, fmt.Errorf("%w: %v: peer offers %d lanes; 1 to %d can be", fault.ErrProtocol, b, len(offered), lane.MaxParts)
	}
	var plan []lane.Plan
	for _, o := range offered {
		if int(o.PeerPort) >= len(f.Ports) {
			return nil, fmt.Errorf("%w: %v: peer offers lane %d to our port %d, which there is not", fault.ErrProtocol, b, o.Index, o.PeerPort)
		}
		p := f.Ports[o.PeerPort]
		now := p.Now()
		if lane.Kind(o.Kind) != p.Kind() {
			return nil, fmt.Errorf("%w: %v: peer offers lane %d, a %v, to our %v", fault.ErrProtocol, b, o.Index, lane.Kind(o.Kind), now)
		}
		peer, addr, ok := portOf(f.PortsOf(b.Session), o)
		if !ok {
			return nil, fmt.Errorf("%w: %v: peer offers a lane from %s of its port %d, which it has not told us of", fault.ErrProtocol, b, o.Addr.Unmap(), o.Port)
		}
		gid, ok := now.Answer(addr, f.GIDs)
		if !ok {
			return nil, fmt.Errorf("%w: %v: %v has no address that fits %s of the peer's %s", fault.ErrUnreachable, b, now, o.Addr.Unmap(), lane.PeerPort(peer).Short())
		}
		plan = append(plan, lane.Plan{Port: p, From: now.GIDs[gid], Peer: peer, To: o.Addr})
	}
	return plan, nil
}

// portOf finds the port and the address of the peer that a lane begins at.
func portOf(ports []handshake.Port, o handshake.Lane) (handshake.Port, handshake.PortAddr, bool) {
	for _, p := range ports {
		if p.Index != o.Port {
			continue
		}
		for _, a := range p.Addrs {
			if a.Addr == o.Addr && a.GIDIndex == o.GIDIndex {
				return p, a, true
			}
		}
	}
	return handshake.Port{}, handshake.PortAddr{}, false
}
