package handshake

import "net/netip"

// Values of Lane.Kind.
const (
	LaneVerbs   = 1 // a queue pair
	LaneTCP     = 2 // a socket, which may lead through relays
	LaneCircuit = 3 // queue pairs through relays
)

// Lane is one side's half of a lane: what the other side needs to connect its own half to it.
type Lane struct {
	Index    uint8      // the lane's number in its connection, below MaxLanes
	Port     uint8      // Port.Index, of the sender of this message
	PeerPort uint8      // Port.Index, of its receiver
	QPN      uint32     // 24 bits
	PSN      uint32     // 24 bits
	Addr     netip.Addr // of the port, 128 bits: its GID, or an IP address; IPv4 is mapped into IPv6
	GIDIndex uint16
	LID      uint16
	MTU      uint8 // enum ibv_mtu, 1 to 5; 0 for TCP
	MaxMsg   uint32
	Kind     uint8
	Token    uint64 // what the peer's proof must carry
	TCPPort  uint16
	Check    bool   // of TCP: this side wants what the socket carries to be authenticated; one side's wish is enough
	ECE      ECE    // of the queue pair
	Through  string // of the sender's half: the nodes that relay the lane, for people; "" of one that nobody relays
}

// ECE is what a side says of the enhanced connection establishment of its queue pair, by which both ends agree on options
// of their adapters (struct ibv_ece of <infiniband/verbs.h>). The side that speaks first says what its adapter can do, and
// the answer is what remains of it. The zero value says that this side does without.
type ECE struct {
	Vendor  uint32 // of the adapter; it gives the options their meaning
	Options uint32
}

// MaxThrough is how many bytes Lane.Through may have.
const MaxThrough = 256

// An Open of as many lanes as there can be fits.
const _ = uint(MaxBody - (4 + 4 + 4 + 32 + 8 + 1 + MaxDomains*(1+1+4) + 1 + MaxLanes*(1+1+1+4+4+16+2+2+1+4+1+8+2+1+4+4+2+MaxThrough)))

// Domain is one domain of a connection: a port and a kind of lanes over it, and the key of the memory named in the same
// message.
type Domain struct {
	Port uint8 // Port.Index of its sender
	Kind uint8
	RKey uint32
}

// laneSet has a bit for each lane of a connection.
type laneSet uint32

const _ = uint(32 - MaxLanes)

func (c *codec) lanes(lanes *[]Lane) {
	list(c, "lanes", lanes, MaxLanes, c.lane)
	var seen laneSet
	for i := range *lanes {
		bit := laneSet(1) << (*lanes)[i].Index
		if seen&bit != 0 {
			c.fail("lane %d is named twice", (*lanes)[i].Index)
		}
		seen |= bit
	}
}

// lane handles one half.
func (c *codec) lane(l *Lane) {
	c.atMost("lane index", &l.Index, MaxLanes-1)
	c.u8(&l.Port)
	c.u8(&l.PeerPort)
	c.u24("queue pair number", &l.QPN)
	c.u24("packet sequence number", &l.PSN)
	c.addr128(&l.Addr)
	c.u16(&l.GIDIndex)
	c.u16(&l.LID)
	c.atMost("MTU", &l.MTU, 5)
	c.u32(&l.MaxMsg)
	c.u8(&l.Kind)
	c.u64(&l.Token)
	c.u16(&l.TCPPort)
	c.flag("check", &l.Check)
	c.u32(&l.ECE.Vendor)
	c.u32(&l.ECE.Options)
	c.text("relaying nodes", &l.Through, MaxThrough)
	if !knownKind(l.Kind) {
		c.fail("lane kind %d is unknown", l.Kind)
	}
	if l.Check && l.Kind != LaneTCP {
		c.fail("lane %d is not a socket, but asks for authentication", l.Index)
	}
	if err := l.ECE.check(l.Kind); err != "" {
		c.fail("lane %d: %s", l.Index, err)
	}
}

// check returns what is wrong with the options of a lane of a kind, or "".
func (e ECE) check(kind uint8) string {
	switch {
	case e == ECE{}:
		return ""
	case kind != LaneVerbs:
		return "options of a queue pair, and the lane is none"
	case e.Vendor == 0:
		return "options of a queue pair without the vendor that gives them their meaning"
	}
	return ""
}

// knownKind reports whether a lane can be of a kind.
func knownKind(k uint8) bool { return k == LaneVerbs || k == LaneTCP || k == LaneCircuit }

func (c *codec) domain(d *Domain) {
	c.u8(&d.Port)
	c.u8(&d.Kind)
	if !knownKind(d.Kind) {
		c.fail("domain kind %d is unknown", d.Kind)
	}
	c.u32(&d.RKey)
}
