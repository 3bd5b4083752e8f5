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

func (w *writer) ports(ports []Port) {
	w.count("ports", len(ports), MaxPorts)
	for i := range ports {
		p := &ports[i]
		w.u8(p.Index)
		w.text(p.Device, MaxName)
		w.u8(p.Num)
		w.text(p.Netdev, MaxName)
		w.atMost("link layer", p.LinkLayer, IBV_LINK_LAYER_ETHERNET)
		w.u16(p.LID)
		w.atMost("MTU", p.MTU, 5)
		w.u32(p.NetdevMTU)
		w.u32(p.MaxMsgSize)
		w.u32(p.SpeedMbps)
		w.count("addresses of a port", len(p.Addrs), MaxPortAddrs)
		for _, a := range p.Addrs {
			w.addr128(a.Addr)
			w.u16(a.GIDIndex)
			if a.GIDType > GIDTypeRoCEv2 && a.GIDType != GIDTypeNone {
				w.fail("GID type %d is unknown", a.GIDType)
			}
			w.u8(a.GIDType)
			w.atMost("prefix length", a.PrefixLen, 128)
		}
	}
}

func (r *reader) ports() []Port {
	n := r.atMost("number of ports", MaxPorts)
	var ports []Port
	for range n {
		p := Port{
			Index:      r.u8(),
			Device:     r.text("device name", MaxName),
			Num:        r.u8(),
			Netdev:     r.text("interface name", MaxName),
			LinkLayer:  r.atMost("link layer", IBV_LINK_LAYER_ETHERNET),
			LID:        r.u16(),
			MTU:        r.atMost("MTU", 5),
			NetdevMTU:  r.u32(),
			MaxMsgSize: r.u32(),
			SpeedMbps:  r.u32(),
		}
		for range r.atMost("number of addresses of a port", MaxPortAddrs) {
			a := PortAddr{Addr: netip.AddrFrom16(r.id()), GIDIndex: r.u16(), GIDType: r.u8()}
			if a.GIDType > GIDTypeRoCEv2 && a.GIDType != GIDTypeNone {
				r.fail("GID type %d is unknown", a.GIDType)
			}
			a.PrefixLen = r.atMost("prefix length", 128)
			if r.err != nil {
				return nil
			}
			p.Addrs = append(p.Addrs, a)
		}
		if r.err != nil {
			return nil
		}
		ports = append(ports, p)
	}
	return ports
}
