package adapter

import (
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
)

// Resolve is how long modify_qp looks for a neighbour that does not answer.
const Resolve = time.Second

// A Fabric is all adapters and links of a simulation. Its methods, and those of what it consists of, may be called from any
// goroutine of the bus's bubble.
type Fabric struct {
	bus *bus.Bus

	mu      sync.Mutex // held for moments; taken before the bus's
	devices []*Device
	qps     map[uint32]*queuePair
	nextQPN uint32
	nextKey uint32
	handles uintptr
	gpus    []*GPUMemory
	counts  counters
	landed  func(node string, addr, n uint64)
}

// New makes an empty fabric.
func New(b *bus.Bus) *Fabric {
	return &Fabric{bus: b, qps: map[uint32]*queuePair{}, nextQPN: 0x101, nextKey: 0x1000, counts: counters{}}
}

// handle is the name of a new object.
// Preconditions: f.mu is locked.
func (f *Fabric) handle() uintptr {
	f.handles++
	return f.handles
}

// after asks for an event that runs with f.mu locked.
func (f *Fabric) after(s *bus.Source, d time.Duration, what string, do func()) *bus.Event {
	return s.After(d, what, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		do()
	})
}

// OnLanding has f called for all bytes that a peer writes into a node's memory, by WRITE or by SEND: hardware checks keys
// and bounds alone, a simulation can check what was granted. f runs within an event and must not call the fabric.
func (f *Fabric) OnLanding(do func(node string, addr, n uint64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.landed = do
}

// Limits are what a device can do at most.
type Limits struct {
	QPs, QPWR, CQs, CQE, SGE, MRs, PDs int
	Inline                             int // bytes
	Reads                              int // outstanding, of a queue pair
	MsgSize                            int // bytes of a message
}

// Usual are the limits of a ConnectX-7, as far as they matter.
var Usual = Limits{QPs: 1 << 17, QPWR: 1 << 15, CQs: 1 << 24, CQE: 1<<22 - 1, SGE: 30, MRs: 1 << 24, PDs: 1 << 23,
	Inline: 828, Reads: 16, MsgSize: 1 << 30}

// A Device is an adapter in a node.
type Device struct {
	fabric     *Fabric
	node       string
	name       string
	guid       uint64
	limits     Limits
	ece        ibv.ECE // see KnowECE
	ports      []*Port
	opened     []*context // in the order of their opening
	events     *bus.Source
	byKey      map[uint32]*region
	posted     []posted // writes to GPU memory on their way
	lastPosted uint64   // number of the last of them
	dead       bool

	dataDirect string // see KnowDataDirect

	// Faults, guarded by the fabric's mu.
	refusals []*refusal
	slow     map[string]time.Duration
	late     time.Duration // completions show so much later at most
}

// AddDevice puts a device into a node.
func (f *Fabric) AddDevice(node, name string, l Limits) *Device {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%s", node, name)
	d := &Device{fabric: f, node: node, name: name, guid: h.Sum64(), limits: l, slow: map[string]time.Duration{},
		events: f.bus.Source("device " + node + "/" + name)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices = append(f.devices, d)
	return d
}

// GUID is the device's.
func (d *Device) GUID() uint64 { return d.guid }

// PortConfig says what a port is.
type PortConfig struct {
	GIDs []GID  // its table, from index 0
	LID  uint16 // of an InfiniBand port; 0 is Ethernet
	MTU  uint32 // IBV_MTU_256 and so on; IBV_MTU_4096
	Mbps int    // 100,000
}

// GID is an entry of a port's table.
type GID struct {
	GID  ibv.GID
	Type uint32 // IBV_GID_TYPE_ROCE_V2 and so on
}

// A Port is a port of a device.
type Port struct {
	device *Device
	num    uint8
	config PortConfig
	off    bool  // switched off, whatever the link says
	link   *Link // nil: nothing is plugged in
	line   *line // that it sends on
}

// AddPort gives the device its next port, of number 1 for the first.
func (d *Device) AddPort(c PortConfig) *Port {
	if c.MTU == 0 {
		c.MTU = ibv.IBV_MTU_4096
	}
	if c.Mbps == 0 {
		c.Mbps = 100_000
	}
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	p := &Port{device: d, num: uint8(len(d.ports) + 1), config: c}
	p.line = &line{port: p, source: d.fabric.bus.Source(fmt.Sprintf("line %s", p))}
	d.ports = append(d.ports, p)
	return p
}

func (p *Port) String() string { return fmt.Sprintf("%s/%s/%d", p.device.node, p.device.name, p.num) }

// active reports whether the port sends and receives.
// Preconditions: f.mu is locked.
func (p *Port) active() bool {
	return !p.off && !p.device.dead && p.link != nil && !p.link.cut
}

// port is the port of that number, nil where there is none.
func (d *Device) port(num uint8) *Port {
	if num == 0 || int(num) > len(d.ports) {
		return nil
	}
	return d.ports[num-1]
}

// has returns the index of a GID of the port, -1 where it has none such.
func (p *Port) has(gid ibv.GID, typ uint32) int {
	for i, g := range p.config.GIDs {
		if g.GID == gid && g.Type == typ {
			return i
		}
	}
	return -1
}

// reach finds the port that an address leads to from p: p itself, or another on its link.
// Preconditions: f.mu is locked.
func (p *Port) reach(ah *ibv.AHAttr) *Port {
	matches := func(q *Port) bool {
		if p.config.LID != 0 {
			return q.config.LID == ah.DLID
		}
		return q.has(ah.GRH.DGID, p.config.GIDs[ah.GRH.SGIDIndex].Type) >= 0
	}
	if matches(p) {
		return p
	}
	if !p.active() {
		return nil
	}
	for _, q := range p.link.ports {
		if q != p && q.active() && matches(q) {
			return q
		}
	}
	return nil
}
