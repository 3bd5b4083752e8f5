package lab

import (
	"fmt"
	"net/netip"
	"slices"
)

// A Mesh is the machines of a lab and the cables between them.
type Mesh struct {
	Name     string
	Machines []string // short names: "a" is the host node-a and gets NODE=a
	Cables   []Cable
	CPUs     int // virtual CPUs of each machine
}

// A Cable joins two ports and is a subnet of its own.
type Cable struct {
	Name string
	Net  netip.Prefix
	Ends [2]End
}

// An End is one port: a network interface with an RDMA device on it.
type End struct {
	Machine string
	Iface   string
	Device  string
	Addr    netip.Addr
}

// ManagementIface is the interface by which the machines of a mesh reach each other beside the cables.
const ManagementIface = "mgmt"

var managementNet = netip.MustParsePrefix("10.10.10.0/24")

// MTU of every cable. Soft-RoCE carries 4096-byte packets from 9000 on.
const cableMTU = 9000

// Triangle is three machines a, b, c with a cable between each two and a management network. One virtual CPU each:
// six busy threads on two cores are slower in everything.
func Triangle() Mesh {
	m := Mesh{Name: "triangle", Machines: []string{"a", "b", "c"}, CPUs: 1}
	m.cable(100, "a", "b")
	m.cable(101, "b", "c")
	m.cable(102, "c", "a")
	return m
}

// Ring is four machines a, b, c, d, each with a cable to the next and a management network: opposite ones share no cable.
func Ring() Mesh {
	m := Mesh{Name: "ring", Machines: []string{"a", "b", "c", "d"}, CPUs: 1}
	m.cable(100, "a", "b")
	m.cable(101, "b", "c")
	m.cable(102, "c", "d")
	m.cable(103, "d", "a")
	return m
}

// cable adds a cable between two machines: 192.168.N.0/24, interface rN and device rxeN at both ends, and the machine's
// position as host number.
func (m *Mesh) cable(n int, from, to string) {
	end := func(machine string) End {
		return End{
			Machine: machine,
			Iface:   fmt.Sprintf("r%d", n),
			Device:  fmt.Sprintf("rxe%d", n),
			Addr:    hostOf(subnet(n), m.position(machine)),
		}
	}
	m.Cables = append(m.Cables, Cable{Name: from + to, Net: subnet(n), Ends: [2]End{end(from), end(to)}})
}

// Host returns the host name of a machine.
func Host(machine string) string { return "node-" + machine }

// ManagementAddr returns a machine's address on the management network.
func (m Mesh) ManagementAddr(machine string) netip.Addr {
	return hostOf(managementNet, m.position(machine))
}

// position counts machines from 1.
func (m Mesh) position(machine string) int { return slices.Index(m.Machines, machine) + 1 }

func subnet(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(n), 0}), 24)
}

func hostOf(p netip.Prefix, host int) netip.Addr {
	a := p.Addr().As4()
	a[3] = byte(host)
	return netip.AddrFrom4(a)
}

// mac is the hardware address of a machine's end of cable number link; link 255 is the management network.
func (m Mesh) mac(machine string, link int) string {
	return fmt.Sprintf("52:54:00:00:%02x:%02x", m.position(machine), link)
}

const managementLink = 255
