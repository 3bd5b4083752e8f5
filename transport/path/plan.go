package path

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// PlanFor returns this side's specification of each lane that the sender offers.
func (f *Finder) PlanFor(c *conn.Conn, offered []handshake.Lane) ([]lane.Spec, error) {
	if len(offered) == 0 || len(offered) > lane.MaxParts {
		return nil, fmt.Errorf("%w: %v: the peer offers %d lanes; 1 to %d are allowed", fault.ErrProtocol, c, len(offered), lane.MaxParts)
	}
	var plan []lane.Spec
	for _, o := range offered {
		if int(o.PeerPort) >= len(f.Ports) {
			return nil, fmt.Errorf("%w: %v: the peer offers lane %d to our port %d, which does not exist", fault.ErrProtocol, c, o.Index, o.PeerPort)
		}
		p := f.Ports[o.PeerPort]
		if lane.Kind(o.Kind) == lane.Circuit && f.Circuits != nil {
			p = f.Circuits(p)
		}
		now := p.Now()
		if lane.Kind(o.Kind) != p.Kind() {
			return nil, fmt.Errorf("%w: %v: the peer offers lane %d, a %v, to our %v", fault.ErrProtocol, c, o.Index, lane.Kind(o.Kind), now)
		}
		peer, addr, ok := portOf(f.PortsOf(c.Session), o)
		if !ok {
			return nil, fmt.Errorf("%w: %v: the peer offers a lane from its port %d, which it has not described", fault.ErrProtocol, c, o.Port)
		}
		// If the port has changed since the offer, the lane fails later, when it is connected.
		var from topology.Address
		if gid, ok := now.Answer(addr, f.GIDs); ok {
			from = now.GIDs[gid]
		} else if len(now.GIDs) > 0 {
			from = now.GIDs[0]
		}
		plan = append(plan, lane.Spec{Port: p, From: from, Peer: peer, To: o.Addr, Route: lane.RouteOf(o)})
	}
	return plan, nil
}

// portOf finds the peer's port and address from which an offered lane starts. If the peer's description does
// not contain the address, because one of the two messages is older, the offered address is used.
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
		return p, handshake.PortAddr{Addr: o.Addr, GIDIndex: o.GIDIndex}, true
	}
	return handshake.Port{}, handshake.PortAddr{}, false
}
