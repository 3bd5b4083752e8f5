package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"ncclmesh/handshake"
)

// DefaultMbps is the speed of a port that does not say how fast it is: what NCCL itself assumes of such a device.
const DefaultMbps = 10000

// Port is one RDMA port with the network interface that carries its addresses, or, when Device is empty, a network
// interface alone, which only TCP can use.
type Port struct {
	Device string // RDMA device, "" for a network interface alone
	Num    uint8  // port of the device, from 1; 0 for a network interface alone

	Netdev    string // network interface, "" when there is none here
	Outside   string // name of the network interface where that is in another network namespace, as of a container's host
	Lower     string // of a network interface alone: what it stands on when it is a VLAN or the like
	IfIndex   int
	NetdevMTU int
	Carrier   bool
	Addrs     []netip.Prefix // addresses of the network interface, both families
	Default   bool           // a default route leads out of the network interface
	Loopback  bool           // the network interface is the loopback, which leads to no other machine
	Wireless  bool           // of a network interface alone: it is a radio, no cable of a mesh, and its speed is anybody's guess

	GIDs      []Address // the GIDs in use, in table order; for a network interface alone its addresses, with type GIDTypeNone
	LinkLayer uint8     // IBV_LINK_LAYER_INFINIBAND or IBV_LINK_LAYER_ETHERNET
	LID       uint16
	Active    bool
	State     string // as sysfs has it: "ACTIVE", "DOWN", "INIT", "ARMED"; "UP" or "DOWN" for a network interface alone

	LinkMbps int // of the cable, 0 when unknown
	PCIMbps  int // of the slowest PCIe link on the way to it, net of the line encoding, 0 when unknown

	PCIPath      string // real path of its PCI function in sysfs, as NCCL wants it, "" when it is virtual
	NUMA         int    // -1 when unknown
	SysImageGUID uint64 // the same for all functions of one adapter
	NodeGUID     uint64
	PhysPort     string // name that the driver gives the connector, such as "p0"
}

// GIDType is the type of a GID. The values are those of the set-up messages.
type GIDType uint8

const (
	GIDTypeIB     GIDType = handshake.GIDTypeIB
	GIDTypeRoCEv1 GIDType = handshake.GIDTypeRoCEv1
	GIDTypeRoCEv2 GIDType = handshake.GIDTypeRoCEv2
	GIDTypeNone   GIDType = handshake.GIDTypeNone // an address of a network interface, of use to TCP only
)

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	case GIDTypeNone:
		return "TCP"
	}
	return fmt.Sprintf("GID type %d", uint8(t))
}

// Address is one address of a port: an entry of its GID table, or of a network interface alone an address of it.
type Address struct {
	Index     int
	Addr      netip.Addr // 16 byte form; an IPv4 address is recognised by Is4In6
	Raw       [16]byte
	Type      GIDType
	Netdev    string // interface that the GID belongs to; a VLAN's differs from the port's
	PrefixLen int    // of this address on Netdev, in bits of its own family; -1 when Netdev does not have the address
}

// String returns the address as a person knows it, with type and index.
func (g Address) String() string {
	if g.Type == GIDTypeNone {
		return g.Addr.Unmap().String()
	}
	return fmt.Sprintf("%s (%s, GID index %d)", g.Addr.Unmap(), g.Type, g.Index)
}

// Link is a network interface in a snapshot.
type Link struct {
	Name     string
	Index    int
	MTU      int
	Kind     string // "device", "vlan", "bond", "bridge", "veth" …
	Parent   int    // index of the interface that a VLAN or macvlan stands on, 0 when there is none
	Master   int    // index of the bridge, bond or the like that the interface is a port of, 0 when there is none
	MAC      [6]byte
	Up       bool // administratively
	Carrier  bool
	Loopback bool
	Default  bool           // a default route, of either family and of any table, leads out of it
	Addrs    []netip.Prefix // not masked: the address itself with its prefix length
}

// Node is what Discover found.
type Node struct {
	Ports    []Port   // RDMA ports, whatever their state
	Plain    []Port   // the node without RDMA: a port for every network interface
	Links    []Link   // all network interfaces, in order of their index
	Warnings []string // RDMA devices that cannot be used and why, for people
}

// Mbps is the speed that the port can really carry: the smaller of link and PCIe speed, the one that is known when
// the other is not, DefaultMbps when neither is.
func (p *Port) Mbps() int {
	switch {
	case p.LinkMbps <= 0 && p.PCIMbps <= 0:
		return DefaultMbps
	case p.LinkMbps <= 0:
		return p.PCIMbps
	case p.PCIMbps <= 0:
		return p.LinkMbps
	}
	return min(p.LinkMbps, p.PCIMbps)
}

// Assumed reports whether the port's speed is DefaultMbps for want of a better one.
func (p *Port) Assumed() bool { return p.LinkMbps <= 0 && p.PCIMbps <= 0 }

// Usable reports whether the port may carry something now: it is up, and an interface alone has an address.
func (p *Port) Usable() bool { return p.Active && (p.Device != "" || len(p.Addrs) > 0) }

// NoCarrier reports whether the port has lost its link as far as its network interface tells: the interface is an Ethernet's, is
// in this network namespace, and has no carrier. Of an InfiniBand port the interface (IP over InfiniBand) says nothing: it
// may be down while the port carries RDMA.
func (p *Port) NoCarrier() bool {
	return p.LinkLayer == handshake.IBV_LINK_LAYER_ETHERNET && p.IfIndex != 0 && !p.Carrier
}

// Cage identifies the connector of the port on this node; ports with the same Cage share a cable. The adapter is known
// by its system image GUID, as functions of one connector may sit in different PCIe slots. A driver that does not name
// its connectors has one for each port.
func (p *Port) Cage() string {
	switch {
	case p.SysImageGUID != 0 && p.PhysPort != "":
		return fmt.Sprintf("%016x/%s", p.SysImageGUID, p.PhysPort)
	case p.PCIPath != "" && p.Device != "":
		return fmt.Sprintf("%s/%d", path.Base(p.PCIPath), p.Num)
	case p.PCIPath != "":
		return path.Base(p.PCIPath) + "/" + p.PhysPort
	}
	return p.virtual()
}

// Attachment identifies what the port shares its PCIe bandwidth with: the functions below one PCIe link. A port that
// is not on PCIe is its own.
func (p *Port) Attachment() string {
	if p.PCIPath == "" {
		return p.virtual()
	}
	if up := path.Dir(p.PCIPath); isPCIAddr(path.Base(up)) {
		return up
	}
	function := strings.LastIndexByte(p.PCIPath, '.')
	return p.PCIPath[:function]
}

// virtual identifies a port that is not on PCIe.
func (p *Port) virtual() string {
	if p.Lower != "" {
		return p.Lower
	}
	return p.String()
}

// String names the port: "rocep1s0f0:1 (enp1s0f0np0)", or just the interface when there is no RDMA device.
func (p *Port) String() string {
	name := cmp.Or(p.Netdev, p.Outside)
	switch {
	case p.Device == "":
		return name
	case name == "":
		return fmt.Sprintf("%s:%d", p.Device, p.Num)
	}
	return fmt.Sprintf("%s:%d (%s)", p.Device, p.Num, name)
}

// Names returns what people call each of the ports, as String does.
func Names(ports []Port) []string {
	names := make([]string, len(ports))
	for i := range ports {
		names[i] = ports[i].String()
	}
	return names
}

// Absent says, for people, that the network interface of a RoCE port is in another network namespace, and what to do about
// it; "" when it is not. The interface of an InfiniBand port does not matter.
func (p *Port) Absent() (what, remedy string) {
	if p.Outside == "" || p.LinkLayer != handshake.IBV_LINK_LAYER_ETHERNET {
		return "", ""
	}
	return fmt.Sprintf("interface %s of %s is not in this network namespace", p.Outside, p.Device), "run the container with --network host"
}

// Short names the port in messages that name many.
func (p *Port) Short() string {
	if p.Device == "" {
		return p.Netdev
	}
	return fmt.Sprintf("%s:%d", p.Device, p.Num)
}

// Summary describes the port in one line, with the GID that comes first under the policy.
func (p *Port) Summary(pol GIDPolicy) string {
	var b strings.Builder
	b.WriteString(p.String())
	switch {
	case p.Device == "":
		b.WriteString(" TCP")
	case p.LinkLayer == handshake.IBV_LINK_LAYER_INFINIBAND:
		fmt.Fprintf(&b, " IB lid %d", p.LID)
	default:
		b.WriteString(" RoCE")
	}
	fmt.Fprintf(&b, " %s", p.State)
	if p.LinkMbps > 0 {
		fmt.Fprintf(&b, ", link %s", rate(p.LinkMbps))
	}
	if p.PCIMbps > 0 {
		fmt.Fprintf(&b, ", PCIe %s", rate(p.PCIMbps))
	}
	if p.Assumed() {
		fmt.Fprintf(&b, ", %s assumed", rate(DefaultMbps))
	}
	if p.NetdevMTU > 0 {
		fmt.Fprintf(&b, ", MTU %d", p.NetdevMTU)
	}
	if ranked := p.RankGIDs(pol); len(ranked) > 0 {
		fmt.Fprintf(&b, ", %s", ranked[0])
	} else {
		b.WriteString(", no usable address")
	}
	return b.String()
}

func rate(mbps int) string {
	if mbps < 1000 {
		return fmt.Sprintf("%d Mb/s", mbps)
	}
	return fmt.Sprintf("%.4g Gb/s", float64(mbps)/1000)
}
