package handshake

import "net/netip"

// Values of Port.LinkLayer, as in enum ibv_port's link_layer.
const (
	IBV_LINK_LAYER_UNSPECIFIED = 0
	IBV_LINK_LAYER_INFINIBAND  = 1
	IBV_LINK_LAYER_ETHERNET    = 2
)

// Values of PortAddr.GIDType.
const (
	GIDTypeIB     = 0
	GIDTypeRoCEv1 = 1
	GIDTypeRoCEv2 = 2
	GIDTypeNone   = 255 // an IP address without a GID: TCP only
)

// Port describes one port of a node to its peer.
type Port struct {
	Index      uint8 // the sender's own number for it
	Device     string
	Num        uint8
	Netdev     string
	LinkLayer  uint8
	LID        uint16
	MTU        uint8 // enum ibv_mtu, 1 to 5; 0 without verbs
	NetdevMTU  uint32
	MaxMsgSize uint32
	SpeedMbps  uint32
	Addrs      []PortAddr
}

// PortAddr is one address of a port.
type PortAddr struct {
	Addr      netip.Addr // 128 bits: a GID, or an IP address; IPv4 is mapped into IPv6, as in a RoCE GID
	GIDIndex  uint16
	GIDType   uint8
	PrefixLen uint8 // of the interface address, in bits of its own family
}

func (c *codec) ports(ports *[]Port) { list(c, "ports", ports, MaxPorts, c.port) }

func (c *codec) port(p *Port) {
	c.u8(&p.Index)
	c.text("device name", &p.Device, MaxName)
	c.u8(&p.Num)
	c.text("interface name", &p.Netdev, MaxName)
	c.atMost("link layer", &p.LinkLayer, IBV_LINK_LAYER_ETHERNET)
	c.u16(&p.LID)
	c.atMost("MTU", &p.MTU, 5)
	c.u32(&p.NetdevMTU)
	c.u32(&p.MaxMsgSize)
	c.u32(&p.SpeedMbps)
	list(c, "addresses of a port", &p.Addrs, MaxPortAddrs, c.portAddr)
}

func (c *codec) portAddr(a *PortAddr) {
	c.addr128(&a.Addr)
	c.u16(&a.GIDIndex)
	c.u8(&a.GIDType)
	if a.GIDType > GIDTypeRoCEv2 && a.GIDType != GIDTypeNone {
		c.fail("GID type %d is unknown", a.GIDType)
	}
	c.atMost("prefix length", &a.PrefixLen, 128)
}
