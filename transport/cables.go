package transport

import (
	"slices"

	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
)

// cablePorts returns the ports that may have a cable: RDMA ports, and interfaces without a default route, or all
// interfaces if the user declares them to be the mesh.
func (t *Transport) cablePorts() (all []discovery.Port) {
	for _, p := range t.ports {
		now := p.Now()
		rdma := p.Kind() == lane.Verbs
		mesh := rdma || t.opts.LaneIfs.Named() || t.opts.Key != "" || !now.Default && !(t.opts.Interfaces.Named() && t.opts.Interfaces.Match(now.Netdev))
		known := slices.ContainsFunc(all, func(h discovery.Port) bool { return h.Netdev == now.Netdev }) // the interface of an RDMA port is a TCP port too
		if mesh && now.Netdev != "" && now.Carrier && now.Usable() && !known {
			all = append(all, discovery.Port{Index: p.Index(), Netdev: now.Netdev, RDMA: rdma})
		}
	}
	return all
}

// isCable reports whether an interface is one of a port that may have a cable.
func (t *Transport) isCable(netdev string) bool {
	return slices.ContainsFunc(t.cablePorts(), func(p discovery.Port) bool { return p.Netdev == netdev })
}

// Cables returns the interfaces that may have a cable.
func (t *Transport) Cables() (names []string) {
	for _, p := range t.cablePorts() {
		names = append(names, p.Netdev)
	}
	return names
}
