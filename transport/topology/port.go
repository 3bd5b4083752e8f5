package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"ncclmesh/handshake"
)

// DefaultMbps is the assumed speed of a port that reports none, which is also NCCL's assumption.
const DefaultMbps = 10000

// Port is an RDMA port with its network interface or, if Device is empty, a plain port: a network interface alone,
// which only TCP can use.
type Port struct {
	Device string // RDMA device; "" for a plain port
	Num    uint8  // port number of the device, from 1; 0 for a plain port

	Netdev    string // network interface; "" if there is none in this namespace
	Outside   string // name of the network interface if it is in another network namespace, for example that of a container's host
	Lower     string // for a plain port: the interface below it, if it is a VLAN or similar
	IfIndex   int
	NetdevMTU int
	Carrier   bool
	Addrs     []netip.Prefix // addresses of the network interface, both families
	Default   bool           // a default route uses the network interface
	Loopback  bool           // the network interface is the loopback interface, which leads to no other machine
	Wireless  bool           // for a plain port: it is a wireless interface, which is no cable of a mesh and has no reliable speed

	GIDs      []Address // the GIDs in use, in table order; for a plain port its addresses, with type GIDTypeNone
	LinkLayer uint8     // IBV_LINK_LAYER_INFINIBAND or IBV_LINK_LAYER_ETHERNET
	LID       uint16
	Active    bool
	State     string // as in sysfs: "ACTIVE", "DOWN", "INIT", "ARMED"; "UP" or "DOWN" for a plain port

	LinkMbps int // of the cable; 0 if unknown
	PCIMbps  int // of the slowest PCIe link between the port and the root, after the line encoding; 0 if unknown

	PCIPath      string // real path of its PCI function in sysfs, as NCCL needs it; "" if it is virtual
	NUMA         int    // -1 if unknown
	SysImageGUID uint64 // equal for all functions of one adapter
	NodeGUID     uint64
	PhysPort     string // name that the driver gives the connector, such as "p0"
}

// GIDType is the type of a GID. The values are those of the set-up messages.
type GIDType uint8

const (
	GIDTypeIB     GIDType = handshake.GIDTypeIB
	GIDTypeRoCEv1 GIDType = handshake.GIDTypeRoCEv1
	GIDTypeRoCEv2 GIDType = handshake.GIDTypeRoCEv2
	GIDTypeNone   GIDType = handshake.GIDTypeNone // an address of a network interface, usable only for TCP
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

// Address is one address of a port: an entry of its GID table, or an address of a plain port's interface.
type Address struct {
	Index     int
	Addr      netip.Addr // in 16 byte form; Is4In6 recognises an IPv4 address
	Type      GIDType
	Netdev    string // interface that the GID belongs to; for a VLAN it differs from the port's
	PrefixLen int    // of this address on Netdev, in bits of its own family; -1 if Netdev does not have the address
}

// String returns the address in its usual form, with type and index.
func (g Address) String() string {
	if g.Type == GIDTypeNone {
		return g.Addr.Unmap().String()
	}
	return fmt.Sprintf("%s (%s, GID index %d)", g.Addr.Unmap(), g.Type, g.Index)
}

// Link is a network interface at the time of a snapshot.
type Link struct {
	Name     string
	Index    int
	MTU      int
	Kind     string // "device", "vlan", "bond", "bridge", "veth" …
	Parent   int    // index of the interface below a VLAN or macvlan; 0 if there is none
	Master   int    // index of the bridge, bond or similar that the interface is a port of; 0 if there is none
	MAC      [6]byte
	Up       bool // administratively
	Carrier  bool
	Loopback bool
	Default  bool           // a default route, of either family and in any table, uses it
	Addrs    []netip.Prefix // not masked: each address with its prefix length
}

// Node is the result of Discover.
type Node struct {
	Ports    []Port   // RDMA ports, regardless of their state
	Plain    []Port   // a plain port for every network interface
	Links    []Link   // all network interfaces, ordered by index
	Warnings []string // RDMA devices that cannot be used, with the reasons, for log lines
}

// Mbps returns the usable speed of the port: the smaller of link and PCIe speed, the known one if the other is unknown,
// DefaultMbps if both are unknown.
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

// Assumed reports whether the port's speed is DefaultMbps because no speed is known.
func (p *Port) Assumed() bool { return p.LinkMbps <= 0 && p.PCIMbps <= 0 }

// Usable reports whether the port can carry traffic now: it is up, and a plain port also has an address.
func (p *Port) Usable() bool { return p.Active && (p.Device != "" || len(p.Addrs) > 0) }

// NoCarrier reports whether the port has lost its link according to its network interface: an Ethernet interface in
// this network namespace that has no carrier. For an InfiniBand port it returns false, because the interface (IP over
// InfiniBand) may be down while the port carries RDMA.
func (p *Port) NoCarrier() bool {
	return p.LinkLayer == handshake.IBV_LINK_LAYER_ETHERNET && p.IfIndex != 0 && !p.Carrier
}

// Cage identifies the connector of the port on this node. Ports with the same Cage share a cable. The adapter is
// identified by its system image GUID, because functions of one connector may be in different PCIe slots. If the driver
// does not name the connectors, each port has its own.
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

// Attachment identifies the PCIe bandwidth that the port shares: that of all functions below one PCIe link. A port that
// is not on PCIe shares none.
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

// virtual returns an identifier for a port that is not on PCIe.
func (p *Port) virtual() string {
	if p.Lower != "" {
		return p.Lower
	}
	return p.String()
}

// String returns the name of the port: "rocep1s0f0:1 (enp1s0f0np0)", or only the interface of a plain port.
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

// Names returns the String of each of the ports.
func Names(ports []Port) []string {
	names := make([]string, len(ports))
	for i := range ports {
		names[i] = ports[i].String()
	}
	return names
}

// Absent returns the text of a warning, and a remedy, if the network interface of a RoCE port is in another network
// namespace, and "" otherwise. The interface of an InfiniBand port does not matter.
func (p *Port) Absent() (what, remedy string) {
	if p.Outside == "" || p.LinkLayer != handshake.IBV_LINK_LAYER_ETHERNET {
		return "", ""
	}
	return fmt.Sprintf("interface %s of %s is not in this network namespace", p.Outside, p.Device), "run the container with --network host"
}

// Short returns a short name of the port, for messages that name many.
func (p *Port) Short() string {
	if p.Device == "" {
		return p.Netdev
	}
	return fmt.Sprintf("%s:%d", p.Device, p.Num)
}

// Summary describes the port in one line, with its best GID under the policy.
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
