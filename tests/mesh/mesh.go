package mesh

import (
	"fmt"
	"net/netip"
)

// A Mesh is nodes and the cables between them.
type Mesh struct {
	Nodes  []string // host names
	Cables []Cable
}

// A Cable joins two nodes and is a subnet of its own.
type Cable struct {
	Net  netip.Prefix
	Ends [2]Port
}

// A Port is one end of a cable.
type Port struct {
	Node  string
	Iface string
	Addr  netip.Addr
}

// ManagementIface is by which all nodes reach each other beside the cables.
const ManagementIface = "mgmt"

var managementNet = netip.MustParsePrefix("10.10.10.0/24")

// mtu of every cable: jumbo frames, as between machines that are cabled directly.
const mtu = 9000

// Triangle is three nodes and a cable between each two.
func Triangle() Mesh {
	return Ring("node-a", "node-b", "node-c")
}

// Ring is nodes of which each has a cable to the next: its interface next there,
// prev here.
func Ring(nodes ...string) Mesh {
	m := Mesh{Nodes: nodes}
	for i, from := range nodes {
		to := nodes[(i+1)%len(nodes)]
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(100 + i), 0}), 24)
		m.Cables = append(m.Cables, Cable{net, [2]Port{
			{from, "next", host(net, 1)},
			{to, "prev", host(net, 2)},
		}})
	}
	return m
}

// Management is a node's address in the management network.
func (m *Mesh) Management(node string) netip.Addr {
	for i, n := range m.Nodes {
		if n == node {
			return host(managementNet, i+1)
		}
	}
	return netip.Addr{}
}

// host is the n-th address of a subnet of IPv4.
func host(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// check says what is wrong with a mesh that cannot be made.
func (m *Mesh) check() error {
	if len(m.Nodes) == 0 || len(m.Nodes) > 200 {
		return fmt.Errorf("a mesh of %d nodes; 1 to 200 can be", len(m.Nodes))
	}
	seen := map[string]bool{}
	for _, n := range m.Nodes {
		if seen[n] || n == "" {
			return fmt.Errorf("node %q is there twice, or has no name", n)
		}
		seen[n] = true
	}
	ifaces := map[[2]string]bool{}
	for _, c := range m.Cables {
		for _, p := range c.Ends {
			if !seen[p.Node] {
				return fmt.Errorf("a cable of %v ends at %q, which is no node", c.Net, p.Node)
			}
			at := [2]string{p.Node, p.Iface}
			if ifaces[at] || p.Iface == "" || len(p.Iface) > 15 || p.Iface == ManagementIface || p.Iface == "lo" {
				return fmt.Errorf("%s has two interfaces %q, or that is no name for one", p.Node, p.Iface)
			}
			ifaces[at] = true
		}
	}
	return nil
}
