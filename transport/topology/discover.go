package topology

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"ncclmesh/handshake"
)

// Source is the data source of Discover.
type Source struct {
	Sysfs string                 // "": /sys
	Links func() ([]Link, error) // nil: the kernel's links, in the caller's network namespace
}

// Discover returns the ports and links of the node. A node without RDMA devices is no error, and neither is a device
// without useful attributes: Node.Warnings contains the devices that cannot be used, with the reasons.
func Discover(src Source) (*Node, error) {
	root, err := openSysfs(cmp.Or(src.Sysfs, "/sys"))
	if err != nil {
		return nil, fmt.Errorf("no sysfs to find the RDMA devices in: %w; mount sysfs on /sys", err)
	}
	links := src.Links
	if links == nil {
		links = kernelLinks
	}
	n := &Node{}
	if n.Links, err = links(); err != nil {
		return nil, fmt.Errorf("cannot list the network interfaces over netlink: %w", err)
	}
	slices.SortStableFunc(n.Links, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })

	d := &discovery{sysfs: root, node: n, links: make(map[string]*Link, len(n.Links))}
	for i := range n.Links {
		d.links[n.Links[i].Name] = &n.Links[i]
	}
	devices, err := root.list("class/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list the RDMA devices: %w", err)
	}
	for _, dev := range devices {
		d.device(dev)
	}
	slices.SortStableFunc(n.Ports, comparePorts)
	for i := range n.Links {
		n.Plain = append(n.Plain, d.plain(&n.Links[i]))
	}
	slices.SortStableFunc(n.Plain, comparePorts)
	return n, nil
}

// comparePorts orders ports by PCI address, virtual ports last, then by name and number.
func comparePorts(a, b Port) int {
	if (a.PCIPath == "") != (b.PCIPath == "") {
		return strings.Compare(b.PCIPath, a.PCIPath)
	}
	return cmp.Or(
		cmp.Compare(len(path.Base(a.PCIPath)), len(path.Base(b.PCIPath))), // a longer domain is a higher one
		strings.Compare(path.Base(a.PCIPath), path.Base(b.PCIPath)),
		strings.Compare(a.Device, b.Device),
		cmp.Compare(a.Num, b.Num),
		strings.Compare(a.Netdev, b.Netdev),
	)
}

// discovery is one run of Discover.
type discovery struct {
	sysfs
	node  *Node
	links map[string]*Link
}

func (d *discovery) warn(format string, args ...any) {
	d.node.Warnings = append(d.node.Warnings, fmt.Sprintf(format, args...))
}

// device adds the ports of an RDMA device.
func (d *discovery) device(dev string) {
	dir := path.Join("class/infiniband", dev)
	if kind := d.text(dir, "node_type"); kind != "" && !strings.HasPrefix(kind, "1:") {
		d.warn("%s is left out: its node type is %q, and only channel adapters (\"1: CA\") have the queue pairs needed", dev, kind)
		return
	}
	nums, err := d.list(dir, "ports")
	if err != nil {
		d.warn("%s is left out: its ports cannot be listed: %v", dev, err)
		return
	}
	for _, s := range nums {
		num, err := strconv.ParseUint(s, 10, 8)
		if err != nil || num == 0 {
			d.warn("%s: port %q is left out: want a number from 1 to 255", dev, s)
			continue
		}
		if p, ok := d.port(dev, dir, s, uint8(num)); ok {
			d.node.Ports = append(d.node.Ports, p)
		}
	}
}

func (d *discovery) port(dev, devDir, s string, num uint8) (Port, bool) {
	dir := path.Join(devDir, "ports", s)
	p := Port{Device: dev, Num: num, SysImageGUID: d.guid(devDir, "sys_image_guid"), NodeGUID: d.guid(devDir, "node_guid")}
	layer := d.text(dir, "link_layer")
	if p.LinkLayer = parseLinkLayer(layer); p.LinkLayer == handshake.IBV_LINK_LAYER_UNSPECIFIED {
		d.warn("%s:%d is left out: its link layer is %q, want InfiniBand or Ethernet", dev, num, layer)
		return p, false
	}
	p.State, p.Active = parseState(d.text(dir, "state"))
	if lid, ok := d.number(32, dir, "lid"); ok && lid > 0 && lid <= 0xffff {
		p.LID = uint16(lid)
	}
	mbps, err := parseRate(d.text(dir, "rate"))
	if err != nil && p.Active {
		d.warn("%s:%d: %v; its PCIe speed or %s is assumed", dev, num, err, rate(DefaultMbps))
	}
	p.LinkMbps = mbps
	p.PCIPath = d.pciFunction(devDir)
	p.PCIMbps = d.pciMbps(p.PCIPath)
	p.NUMA = d.numa(p.PCIPath)
	p.GIDs = d.gids(dir, p.LinkLayer)
	if name := d.netdev(devDir, &p); d.inNamespace(name, p.GIDs) {
		p.Netdev = name
	} else {
		p.Outside = name
	}
	d.attach(&p)
	return p, true
}

// gids returns the entries of the GID table that are in use. Unused ones are zero and have no type. The kernel may set
// the address of an entry before its type; such an entry cannot be used yet.
func (d *discovery) gids(dir string, linkLayer uint8) []Address {
	names, _ := d.list(dir, "gids")
	var gids []Address
	for _, s := range names {
		index, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			continue
		}
		addr, err := parseGID(d.text(dir, "gids", s))
		if err != nil || addr.IsUnspecified() {
			continue
		}
		typ, err := parseGIDType(d.text(dir, "gid_attrs/types", s), linkLayer)
		if err != nil || typ == GIDTypeIB && emptyInterfaceID(addr) {
			continue
		}
		g := Address{Index: int(index), Addr: addr, Type: typ, Netdev: d.text(dir, "gid_attrs/ndevs", s), PrefixLen: -1}
		gids = append(gids, g)
	}
	slices.SortFunc(gids, func(a, b Address) int { return cmp.Compare(a.Index, b.Index) })
	return gids
}

// emptyInterfaceID reports whether a GID is only a subnet prefix, as unused InfiniBand entries are.
func emptyInterfaceID(a netip.Addr) bool {
	raw := a.As16()
	return [8]byte(raw[8:]) == [8]byte{}
}

// netdev returns the network interface of an RDMA port. It prefers the GID table, which is right for bonds and for
// devices without a PCI function. Because VLANs have GIDs in the same table, it prefers the interface that the others
// are stacked on.
func (d *discovery) netdev(devDir string, p *Port) string {
	var names []string
	for _, g := range p.GIDs {
		if g.Netdev != "" && !slices.Contains(names, g.Netdev) {
			names = append(names, g.Netdev)
		}
	}
	for _, name := range names {
		if l := d.links[name]; l != nil && !d.stackedOn(l, names) {
			return name
		}
	}
	if parent := d.text(devDir, "parent"); parent != "" {
		return parent
	}
	if len(names) > 0 {
		return names[0]
	}
	return d.pciNetdev(devDir, p.Num)
}

// inNamespace reports whether an interface that a port names is in this network namespace. Sysfs also shows the names
// of interfaces in other namespaces, and an interface of this namespace may have the same name. In that case the GIDs
// of the port, the first of which are made from a MAC address, do not match the interface.
func (d *discovery) inNamespace(name string, gids []Address) bool {
	l := d.links[name]
	if l == nil || l.MAC == [6]byte{} {
		return l != nil || name == ""
	}
	other := false
	for _, g := range gids {
		if g.Netdev != name || g.Type == GIDTypeIB {
			continue
		}
		raw := g.Addr.As16()
		id := binary.BigEndian.Uint64(raw[8:])
		if prefixLen(l.Addrs, g.Addr) >= 0 || id == eui64(l.MAC) {
			return true
		}
		other = other || g.Addr.IsLinkLocalUnicast() && id>>24&0xffff == 0xfffe
	}
	return !other
}

// stackedOn reports whether the link is a VLAN or a similar interface on one of the others.
func (d *discovery) stackedOn(l *Link, others []string) bool {
	lower := d.lower(l)
	return lower != l && slices.Contains(others, lower.Name)
}

// lower returns the interface below a VLAN, macvlan or ipvlan, or the link itself.
func (d *discovery) lower(l *Link) *Link {
	switch l.Kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
	default:
		return l
	}
	for i := range d.node.Links {
		if lower := &d.node.Links[i]; lower.Index == l.Parent {
			return lower
		}
	}
	return l
}

// pciNetdev returns the network interface of the same PCI function. If a function has several, they are numbered by
// port (dev_port counts from 0). In switchdev mode the uplink, pN, is among the representors.
func (d *discovery) pciNetdev(devDir string, num uint8) string {
	names, _ := d.list(devDir, "device/net")
	best, bestScore := "", -1
	for _, name := range names {
		score := 0
		if port, ok := d.number(32, "class/net", name, "dev_port"); ok && port == int64(num)-1 {
			score += 2
		}
		if !strings.HasPrefix(d.text("class/net", name, "phys_port_name"), "pf") {
			score++
		}
		if score > bestScore {
			best, bestScore = name, score
		}
	}
	return best
}

// attach fills in the attributes of the network interface: index, MTU, addresses with their prefix lengths, the
// connector.
func (d *discovery) attach(p *Port) {
	if l := d.links[p.Netdev]; l != nil {
		p.IfIndex, p.NetdevMTU, p.Carrier, p.Addrs, p.Default = l.Index, l.MTU, l.Carrier, l.Addrs, l.Default
	}
	if p.Netdev != "" {
		p.PhysPort = d.text("class/net", p.Netdev, "phys_port_name")
	}
	for i := range p.GIDs {
		g := &p.GIDs[i]
		if g.Netdev == "" {
			g.Netdev = p.Netdev
		}
		if l := d.links[g.Netdev]; l != nil && g.Type != GIDTypeIB {
			g.PrefixLen = prefixLen(l.Addrs, g.Addr)
		}
	}
}

func prefixLen(addrs []netip.Prefix, a netip.Addr) int {
	for _, p := range addrs {
		if p.Addr() == a.Unmap() {
			return p.Bits()
		}
	}
	return -1
}

// plain returns a network interface as a port of its own. It copies the adapter's attributes from an RDMA port on the
// interface.
func (d *discovery) plain(l *Link) Port {
	base := d.lower(l)
	dir := path.Join("class/net", base.Name)
	p := Port{
		Netdev: l.Name, IfIndex: l.Index, NetdevMTU: l.MTU, Carrier: l.Carrier, Addrs: l.Addrs, Default: l.Default, Loopback: l.Loopback,
		LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: l.Up && l.Carrier, State: "DOWN", NUMA: -1,
		Wireless: d.exists("class/net", l.Name, "phy80211"),
	}
	if p.Active {
		p.State = "UP"
	}
	if base != l {
		p.Lower = base.Name
	}
	if l.MAC != [6]byte{} {
		p.NodeGUID = eui64(l.MAC)
	}
	for _, a := range l.Addrs {
		raw := a.Addr().As16()
		p.GIDs = append(p.GIDs, Address{
			Index: len(p.GIDs), Addr: netip.AddrFrom16(raw), Type: GIDTypeNone, Netdev: l.Name, PrefixLen: a.Bits(),
		})
	}
	// In a network namespace without its own sysfs the name may be that of another interface.
	if index, ok := d.number(32, dir, "ifindex"); !ok || int(index) != base.Index {
		return p
	}
	if mbps, ok := d.number(32, dir, "speed"); ok && mbps > 0 {
		p.LinkMbps = int(mbps)
	}
	p.PCIPath = d.pciFunction(dir)
	p.PCIMbps = d.pciMbps(p.PCIPath)
	p.NUMA = d.numa(p.PCIPath)
	p.PhysPort = d.text(dir, "phys_port_name")
	for _, r := range d.node.Ports {
		if r.Netdev == base.Name && r.SysImageGUID != 0 {
			p.SysImageGUID, p.NodeGUID = r.SysImageGUID, r.NodeGUID
		}
	}
	return p
}

func eui64(mac [6]byte) uint64 {
	return binary.BigEndian.Uint64([]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}
