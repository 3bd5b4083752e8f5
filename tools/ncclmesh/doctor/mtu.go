package doctor

import (
	"fmt"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// jumbo is the MTU of an interface that is advised: RDMA packets have their full 4096 bytes with all that people put around
// them, and TCP has large packets, too.
const jumbo = 9000

// Sizes of RDMA's packets are powers of two. wrapping is what the kernel leaves for headers when it derives the size from the
// interface's MTU.
const (
	fullRDMA  = 4096
	leastRDMA = 256
	wrapping  = 96
)

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
		case p.NetdevMTU < jumbo && packet(n, &p) < fullRDMA: // with packets of full size, RDMA has no use for a larger MTU
			v.warn(at, fmt.Sprintf("set %d at both ends of the cable", jumbo), "%s has an MTU of %d, RDMA packets have %d bytes", p.Netdev, p.NetdevMTU, packet(n, &p))
		}
	}
}

// packet returns the size of RDMA's packets on a port: what the adapter reports, at most what fits the interface.
func packet(n *facts.Node, p *topology.Port) int {
	size := fullRDMA
	for size > leastRDMA && size+wrapping > p.NetdevMTU {
		size /= 2
	}
	for _, a := range n.Adapters {
		if active := a.MTU[p.Num]; a.Device == p.Device && active > 0 {
			size = min(size, active)
		}
	}
	return size
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
