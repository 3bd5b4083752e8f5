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

func (w *writer) lanes(lanes []Lane) {
	w.count("lanes", len(lanes), MaxLanes)
	var seen laneSet
	for i := range lanes {
		l := &lanes[i]
		if seen&(1<<(l.Index%MaxLanes)) != 0 {
			w.fail("lane %d is named twice", l.Index)
		}
		seen |= 1 << (l.Index % MaxLanes)
		w.lane(l)
	}
}

// lane writes one half.
func (w *writer) lane(l *Lane) {
	w.atMost("lane index", l.Index, MaxLanes-1)
	w.u8(l.Port)
	w.u8(l.PeerPort)
	w.u24("queue pair number", l.QPN)
	w.u24("packet sequence number", l.PSN)
	w.addr128(l.Addr)
	w.u16(l.GIDIndex)
	w.u16(l.LID)
	w.atMost("MTU", l.MTU, 5)
	w.u32(l.MaxMsg)
	if !knownKind(l.Kind) {
		w.fail("lane kind %d is unknown", l.Kind)
	}
	w.u8(l.Kind)
	w.u64(l.Token)
	w.u16(l.TCPPort)
	if l.Check && l.Kind != LaneTCP {
		w.fail("lane %d is not a socket, but asks for authentication", l.Index)
	}
	w.flag(l.Check)
	if err := l.ECE.check(l.Kind); err != "" {
		w.fail("lane %d: %s", l.Index, err)
	}
	w.u32(l.ECE.Vendor)
	w.u32(l.ECE.Options)
	w.text(l.Through, MaxThrough)
}

func (r *reader) lanes() []Lane {
	var lanes []Lane
	var seen laneSet
	for range r.atMost("number of lanes", MaxLanes) {
		l := r.lane()
		if seen&(1<<l.Index) != 0 {
			r.fail("lane %d is named twice", l.Index)
		}
		seen |= 1 << l.Index
		if r.err != nil {
			return nil
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// lane reads one half.
func (r *reader) lane() Lane {
	l := Lane{
		Index:    r.atMost("lane index", MaxLanes-1),
		Port:     r.u8(),
		PeerPort: r.u8(),
		QPN:      r.u24("queue pair number"),
		PSN:      r.u24("packet sequence number"),
		Addr:     netip.AddrFrom16(r.id()),
		GIDIndex: r.u16(),
		LID:      r.u16(),
		MTU:      r.atMost("MTU", 5),
		MaxMsg:   r.u32(),
		Kind:     r.u8(),
		Token:    r.u64(),
		TCPPort:  r.u16(),
		Check:    r.flag("check"),
		ECE:      ECE{Vendor: r.u32(), Options: r.u32()},
		Through:  r.text("relaying nodes", MaxThrough),
	}
	if l.Check && l.Kind != LaneTCP {
		r.fail("lane %d is not a socket, but asks for authentication", l.Index)
	}
	if !knownKind(l.Kind) {
		r.fail("lane kind %d is unknown", l.Kind)
	}
	if err := l.ECE.check(l.Kind); err != "" {
		r.fail("lane %d: %s", l.Index, err)
	}
	return l
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

func (w *writer) domains(domains []Domain) {
	w.count("domains", len(domains), MaxDomains)
	for _, d := range domains {
		w.u8(d.Port)
		if !knownKind(d.Kind) {
			w.fail("domain kind %d is unknown", d.Kind)
		}
		w.u8(d.Kind)
		w.u32(d.RKey)
	}
}

func (r *reader) domains() []Domain {
	var domains []Domain
	for range r.atMost("number of domains", MaxDomains) {
		d := Domain{Port: r.u8(), Kind: r.u8(), RKey: r.u32()}
		if r.err == nil && !knownKind(d.Kind) {
			r.fail("domain kind %d is unknown", d.Kind)
		}
		if r.err != nil {
			return nil
		}
		domains = append(domains, d)
	}
	return domains
}
