package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"ncclmesh/tests/fabric"
)

// A link is a cable, or one half of it, with its rate in MB/s; 0 is as fast as
// memory, and without latency.
type link struct {
	a, b string // nodes
	rate float64
	wait int // µs that a message takes on it; 0 for the usual ones
	mtu  int // of the interfaces; 0 for the usual one
}

const latency = 20 // µs, usually, of a link with a rate

// speed is what the ports of the link say of themselves, in Mb/s: 100 Gb/s or a
// part of it, as the rates are to each other.
func (l link) speed() float64 {
	if l.rate == 0 {
		return 100e3
	}
	return 100e3 * min(l.rate/topRate, 1)
}

// meshOf is the nodes of the links, in alphabetical order, and their cables. The
// i-th link of a node is at its device rdma<i>; two links that follow each other
// between the same nodes are the halves of a cage.
func meshOf(links []link) fabric.Mesh {
	var m fabric.Mesh
	count := map[string]int{}
	for i, l := range links {
		c := fabric.Cable{Net: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i + 1), 0}), 24), Rate: l.rate, MTU: l.mtu}
		if l.rate > 0 {
			c.Latency = cmp.Or(l.wait, latency)
		}
		for k, node := range [2]string{l.a, l.b} {
			if !slices.Contains(m.Nodes, node) {
				m.Nodes = append(m.Nodes, node)
			}
			n := count[node]
			count[node]++
			c.Ends[k] = fabric.Port{
				Node: node, Iface: fmt.Sprintf("p%d", n), Device: fmt.Sprintf("rdma%d", n),
				Addr: fabric.Host(c.Net, k+1), Cage: fmt.Sprintf("q%d", n/2), Mbps: int(l.speed()),
			}
		}
		m.Cables = append(m.Cables, c)
	}
	slices.Sort(m.Nodes)
	return m
}
