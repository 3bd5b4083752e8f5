package world

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/internet"
)

// Speed is how a cable carries bytes.
type Speed struct {
	Rate            int64 // bytes a second
	Latency, Jitter time.Duration
}

// A Cable is a link between ports of two machines.
type Cable struct {
	Number   int
	Link     *internet.Link
	Ends     [2]*internet.Interface
	RDMA     *adapter.Link // nil between ports without RDMA
	Adapters [2]*Adapter
}

// An Adapter is the RDMA device of a port.
type Adapter struct {
	*adapter.Port
	Device *adapter.Device
	m      *Machine
	netdev *internet.Interface
	dir    string // in sysfs
}

// Cable joins two machines by a cable of its own subnet. number tells the cables apart.
func (w *World) Cable(number int, s Speed, rdma bool, a, b *Machine) *Cable {
	var ends [2]*internet.Interface
	var adapters [2]*Adapter
	for k, m := range []*Machine{a, b} {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(number), byte(1 + k)}), 24)
		ends[k] = m.AddPort(fmt.Sprintf("p%d", len(m.Interfaces())-1), int(s.Rate/125_000), prefix)
		if rdma {
			adapters[k] = m.AddAdapter(fmt.Sprintf("rocep%ds0", ends[k].Index()), ends[k], int(s.Rate/125_000), adapter.Usual)
		}
	}
	return w.Connect(number, s, ends, adapters)
}

// Connect plugs a cable into two ports, with RDMA where they have adapters.
func (w *World) Connect(number int, s Speed, ends [2]*internet.Interface, adapters [2]*Adapter) *Cable {
	c := &Cable{Number: number, Ends: ends, Adapters: adapters}
	c.Link = w.Net.Connect(internet.LinkConfig{Rate: s.Rate, Latency: s.Latency, Jitter: s.Jitter}, ends[0], ends[1])
	if adapters[0] != nil {
		c.RDMA = w.Fabric.Connect(adapter.LinkConfig{Rate: s.Rate, Latency: s.Latency, Jitter: s.Jitter}, adapters[0].Port, adapters[1].Port)
	}
	return c
}

// eceKinds are what adapters know of enhanced connection establishment, so that cables join adapters which have other options
// in common, none, or none of that at all. The last is one whose firmware lacks it.
var eceKinds = []ibv.ECE{{VendorID: 0x15b3, Options: 7}, {VendorID: 0x15b3, Options: 0xd}, {}, {VendorID: 0x1af4, Options: 5}, {VendorID: 0x15b3}}

// AddAdapter gives an interface an RDMA device, of one port of a speed in Mb/s, with a RoCE v2 GID for each of its addresses. What
// the device knows of enhanced connection establishment follows from its name.
func (m *Machine) AddAdapter(name string, i *internet.Interface, mbps int, l adapter.Limits) *Adapter {
	a := &Adapter{Device: m.world.Fabric.AddDevice(m.Name(), name, l), m: m, netdev: i, dir: filepath.Join(m.sysfs, "class/infiniband", name)}
	know := eceKinds[a.Device.GUID()%uint64(len(eceKinds))]
	a.Device.KnowECE(know.VendorID, know.Options)
	port := filepath.Join(a.dir, "ports/1")
	a.Port = a.Device.AddPort(adapter.PortConfig{Mbps: mbps, GIDs: a.gids()})
	m.write(a.dir, "node_type", "1: CA")
	guid := a.Device.GUID()
	text := fmt.Sprintf("%04x:%04x:%04x:%04x", guid>>48, guid>>32&0xffff, guid>>16&0xffff, guid&0xffff)
	m.write(a.dir, "node_guid", text)
	m.write(a.dir, "sys_image_guid", text)
	m.write(a.dir, "parent", i.Name())
	m.write(port, "link_layer", "Ethernet")
	m.write(port, "rate", fmt.Sprintf("%d Gb/sec (4X EDR)", mbps/1000))
	m.write(port, "lid", "0x0")
	a.tell(true)
	m.Adapters = append(m.Adapters, a)
	return a
}

// tell writes the state of the port to the machine's sysfs.
func (a *Adapter) tell(active bool) {
	state := "1: DOWN"
	if active {
		state = "4: ACTIVE"
	}
	a.m.write(filepath.Join(a.dir, "ports/1"), "state", state)
}

// gids are those that follow from the addresses of the adapter's interface. It writes them to the machine's sysfs.
func (a *Adapter) gids() (all []adapter.GID) {
	port := filepath.Join(a.dir, "ports/1")
	for _, dir := range []string{"gids", "gid_attrs"} {
		if err := os.RemoveAll(filepath.Join(port, dir)); err != nil {
			a.m.world.T.Fatal(err)
		}
	}
	for k, p := range a.netdev.Prefixes() {
		raw := p.Addr().As16()
		all = append(all, adapter.GID{GID: ibv.GID(raw), Type: ibv.IBV_GID_TYPE_ROCE_V2})
		n := fmt.Sprint(k)
		var text string
		for b := 0; b < len(raw); b += 2 {
			text += fmt.Sprintf(":%02x%02x", raw[b], raw[b+1])
		}
		a.m.write(filepath.Join(port, "gids"), n, text[1:])
		a.m.write(filepath.Join(port, "gid_attrs/types"), n, "RoCE v2")
		a.m.write(filepath.Join(port, "gid_attrs/ndevs"), n, a.netdev.Name())
	}
	return all
}

// SetPrefixes replaces the addresses of one end, each with the length of its subnet, and the GIDs of its adapter.
func (c *Cable) SetPrefixes(end int, prefixes ...netip.Prefix) {
	c.Ends[end].SetPrefixes(prefixes...)
	if a := c.Adapters[end]; a != nil {
		a.SetGIDs(a.gids())
	}
}

// Cut takes the carrier from both ports, or gives it back.
func (c *Cable) Cut(cut bool) {
	if c.RDMA != nil {
		for _, a := range c.Adapters {
			a.tell(!cut)
		}
		c.RDMA.Cut(cut)
	}
	c.Link.Cut(cut)
}

// Off switches the port of one end off, or on again: its interface, and with deep its RDMA port too, while the other end
// keeps the carrier of its RDMA port.
func (c *Cable) Off(end int, deep, off bool) {
	if c.RDMA != nil && deep {
		c.Adapters[end].tell(!off)
		c.Adapters[end].Off(off)
	}
	c.Ends[end].SetUp(!off)
}

// OffRDMA switches the RDMA port of one end off, or on again, while its interface stays up.
func (c *Cable) OffRDMA(end int, off bool) {
	if c.RDMA != nil {
		c.Adapters[end].Off(off)
	}
}

// Lose makes a share of what one end sends vanish.
func (c *Cable) Lose(end int, share float64) {
	c.Ends[end].Lose(internet.Loss{Streams: share, Datagrams: share, Neighbour: share})
	if c.RDMA != nil {
		c.Adapters[end].Lose(adapter.Loss{Data: share, Acks: share})
	}
}

// Delay makes all that one end sends arrive so much later.
func (c *Cable) Delay(end int, by time.Duration) {
	c.Ends[end].Delay(by)
	if c.RDMA != nil {
		c.Adapters[end].Delay(by)
	}
}

// Slow makes one end send at a rate, in bytes a second; 0 ends that.
func (c *Cable) Slow(end int, rate int64) {
	c.Ends[end].Slow(rate)
	if c.RDMA != nil {
		c.Adapters[end].Slow(rate)
	}
}
