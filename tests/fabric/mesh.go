package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Mesh is nodes and the cables between them.
type Mesh struct {
	Nodes  []string
	Cables []Cable
}

// A Cable joins two nodes and is a subnet of its own.
type Cable struct {
	Net  netip.Prefix
	Ends [2]Port

	Rate    float64 // MB/s, modelled for RDMA; 0 is as fast as memory
	Latency int     // µs, modelled for RDMA
	MTU     int     // of the interfaces; 0 is the launcher's default
}

// A Port is one end of a cable.
type Port struct {
	Node   string
	Iface  string
	Device string // RDMA; none when empty
	Addr   netip.Addr
	Cage   string // the connector, when ports share it
	Mbps   int    // what the port says of its speed; 0 is the launcher's default
}

// ManagementIface is by which all nodes reach each other beside the cables. There
// a node answers to its name.
const ManagementIface = "mgmt0"

// jumbo frames, as between machines that are cabled directly.
const jumbo = 9000

// Triangle is three nodes and a cable between each two.
func Triangle() Mesh { return Ring("node-a", "node-b", "node-c") }

// Ring is nodes of which each has a cable to the next: interface next and device
// rdma-next there, prev and rdma-prev here.
func Ring(nodes ...string) Mesh {
	m := Mesh{Nodes: nodes}
	for i, from := range nodes {
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(100 + i), 0}), 24)
		m.Cables = append(m.Cables, Cable{Net: net, MTU: jumbo, Ends: [2]Port{
			{Node: from, Iface: "next", Device: "rdma-next", Addr: Host(net, 1)},
			{Node: nodes[(i+1)%len(nodes)], Iface: "prev", Device: "rdma-prev", Addr: Host(net, 2)},
		}})
	}
	return m
}

// Plain is the same mesh without RDMA.
func (m Mesh) Plain() Mesh {
	m.Cables = slices.Clone(m.Cables)
	for i := range m.Cables {
		for k := range m.Cables[i].Ends {
			m.Cables[i].Ends[k].Device = ""
		}
	}
	return m
}

// Host is the n-th address of a subnet of IPv4.
func Host(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// Topology is the mesh in the words of the launcher, which tests/fakeverbs
// describes.
func (m Mesh) Topology() string {
	var nodes, ports, links strings.Builder
	for _, n := range m.Nodes {
		fmt.Fprintf(&nodes, "node %s\n", n)
	}
	for _, c := range m.Cables {
		for _, p := range c.Ends {
			if p.Device == "" {
				fmt.Fprintf(&ports, "netif %s %s", p.Node, p.Iface)
			} else {
				fmt.Fprintf(&ports, "port %s %s netdev %s", p.Node, p.Device, p.Iface)
			}
			fmt.Fprintf(&ports, " addr %v/%d", p.Addr, c.Net.Bits())
			if p.Cage != "" {
				fmt.Fprintf(&ports, " cage %s", p.Cage)
			}
			if p.Mbps != 0 {
				fmt.Fprintf(&ports, " speed %dM", p.Mbps)
			}
			ports.WriteByte('\n')
		}
		fmt.Fprintf(&links, "link %s %s", c.Ends[0].name(), c.Ends[1].name())
		if c.Rate > 0 {
			fmt.Fprintf(&links, " rate %gMB", c.Rate)
		}
		if c.Latency > 0 {
			fmt.Fprintf(&links, " latency %dus", c.Latency)
		}
		if c.MTU > 0 {
			fmt.Fprintf(&links, " mtu %d", c.MTU)
		}
		links.WriteByte('\n')
	}
	return nodes.String() + ports.String() + links.String()
}

// name is what a link of the topology calls the port.
func (p Port) name() string {
	if p.Device == "" {
		return p.Node + ":" + p.Iface
	}
	return p.Node + ":" + p.Device
}
