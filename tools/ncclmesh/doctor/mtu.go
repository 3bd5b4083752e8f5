package doctor

import (
	"fmt"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// jumbo is the least MTU of an interface at which RDMA packets have their full 4096 bytes with
// all that people put around them.
const jumbo = 9000

func mtuSmall(n *facts.Node, v *verdict) {
	ports, ok := rdmaPorts(n, v)
	if !ok {
		return
	}
	for _, p := range roce(ports) {
		at := on(n, facts.PortName(&p))
		switch {
		case p.NetdevMTU == 0:
			v.unknown(at, p.String()+" has no interface whose MTU is known")
		case p.NetdevMTU < jumbo:
			v.warn(at, fmt.Sprintf("set %d at both ends of the cable", jumbo), "%s has an MTU of %d%s", p.Netdev, p.NetdevMTU, activeMTU(n, &p))
		}
	}
}

// activeMTU is what RDMA makes of the interface's.
func activeMTU(n *facts.Node, p *topology.Port) string {
	for _, a := range n.Adapters {
		if a.Device == p.Device && a.MTU[p.Num] > 0 {
			return fmt.Sprintf(", RDMA packets have %d bytes", a.MTU[p.Num])
		}
	}
	return ""
}

// mtuMismatch compares the two ends of each half of a cable.
func mtuMismatch(v *verdict) {
	m, _ := proved(v)
	for _, h := range halves(&m) {
		low, high := 0, 1
		if h.mtu[0] > h.mtu[1] {
			low, high = 1, 0
		}
		at := [2]facts.End{h.a, h.b}
		switch {
		case h.a.Port == "" || h.b.Port == "":
		case h.mtu[low] == 0:
			v.unknown(h.spot(), fmt.Sprintf("the MTU of %s is not known", at[low]))
		case h.mtu[low] < h.mtu[high]:
			v.warn(h.spot(), fmt.Sprintf("set the MTU of %s on %s to %d", at[low].Port, at[low].Node, h.mtu[high]), "MTU %d at %s, %d at %s", h.mtu[low], at[low], h.mtu[high], at[high])
		}
	}
}
