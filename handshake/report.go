package handshake

import "math"

// Limits of a Report.
const (
	MaxReceives = 256 // receives outstanding
	MaxSubs     = 8   // messages of a receive
)

// A Report of as many receives as there can be fits.
const _ = uint(MaxBody - (4 + 1 + 4 + 2 + 8 + 2 + 2 + MaxReceives*(8+1+4*MaxSubs)))

// Report is the receiver's word on what has arrived when a lane is down at both ends: the parts
// that the lane carried and that are not in it did not arrive, and can be sent again.
type Report struct {
	Conn  uint32
	Lane  uint8
	Epoch uint32
	Again uint16 // how many more parts may be sent again, over all lanes
	Eager uint64 // all eager messages up to this number have arrived
	Ahead uint16 // and of those that follow it a bit for each, the lowest for the next
	// Receives are those outstanding, by sequence. One that has been granted and is not among
	// them is complete.
	Receives []Received
}

// Received is what has arrived of a receive.
type Received struct {
	Seq   uint64
	Parts []uint32 // of each of its messages a bit for each part, and all bits once it is complete
}

func (*Report) Type() Type { return TypeReport }

func (m *Report) fields(c *codec) {
	c.u32(&m.Conn)
	c.atMost("lane index", &m.Lane, MaxLanes-1)
	c.u32(&m.Epoch)
	c.u16(&m.Again)
	c.u64(&m.Eager)
	c.u16(&m.Ahead)
	n := uint16(min(len(m.Receives), math.MaxUint16))
	c.u16(&n)
	c.limit("receives", max(int(n), len(m.Receives)), MaxReceives)
	elements(c, int(n), &m.Receives, c.received)
	for i := 1; i < len(m.Receives); i++ {
		if a, b := m.Receives[i-1].Seq, m.Receives[i].Seq; a >= b {
			c.fail("receive %d follows receive %d", b, a)
		}
	}
}

func (c *codec) received(v *Received) {
	c.u64(&v.Seq)
	list(c, "messages of a receive", &v.Parts, MaxSubs, c.u32)
}
