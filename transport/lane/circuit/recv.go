package circuit

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// incoming is the receiver's side of a circuit: the part that is arriving, and the frames
// that have come and are not at their places yet.
type incoming struct {
	ring     handshake.Ring // of the last relay, where large frames lie
	maxReads int            // that may be under way

	part   bool      // one is arriving
	socket [2]uint64 // its header
	at     uintptr   // where its next byte goes
	rest   int       // bytes to come
	lkey   uint32

	arrivals     [hop.Forth]arrival // by sequence
	delivered    uint64             // frames that are at their places
	readsStarted uint64             // frames that need no READ, or have one
	reading      int                // READs under way

	grants
}

// arrival is a frame that has come.
type arrival struct {
	done bool   // its bytes are where they belong
	from uint64 // else where they lie in the last relay's memory
	to   hop.Piece
	ends bool // a part, of that immediate and size
	imm  uint32
	size uint32
}

// place heeds a frame of a part: checks where it goes, copies what has come with it, and
// has the rest read.
func (c *carrier) place(h *hop.Header, place uint32, payload []byte) error {
	if h.Seq-c.delivered > hop.Forth {
		return fmt.Errorf("frame %d arrived while %d before it are not freed", h.Seq, h.Seq-1-c.delivered)
	}
	imm, size := uint32(h.Socket[0]), uint32(h.Socket[0]>>32)
	switch {
	case h.Kind == hop.Begin && c.part:
		return fmt.Errorf("a part begins in frame %d, while %d bytes of another are missing", h.Seq, c.rest)
	case h.Kind == hop.More && (!c.part || h.Socket != c.socket || h.Length == 0):
		return fmt.Errorf("frame %d, %d bytes, continues a part that was not begun", h.Seq, h.Length)
	case h.Kind == hop.Begin:
		addr, r, ok := c.lane.Conn.Sink.Place(c.lane, imm, h.Socket[1], size)
		if !ok { // and the connection has ended
			c.lane.Deactivate()
			return nil
		}
		c.part, c.socket, c.at, c.rest, c.lkey = true, h.Socket, addr, int(size), 0
		if size > 0 && r != nil {
			c.lkey = r.LKeys[c.domain.place]
		}
	}
	n := int(h.Length)
	if n > c.rest || n == 0 && c.rest > 0 {
		return fmt.Errorf("frame %d has %d bytes of a part of which %d are missing", h.Seq, n, c.rest)
	}
	a := &c.arrivals[h.Seq%hop.Forth]
	*a = arrival{imm: imm, size: size, ends: n == c.rest}
	if n <= hop.Small {
		if !lane.CopyOut(c.at, payload[:n]) {
			return c.unmapped(c.at)
		}
		a.done = true
	} else {
		a.from = c.ring.Base + uint64(place)*hop.Unit + hop.HeaderSize
		a.to = hop.Piece{Addr: c.at, Length: n, Key: c.lkey}
	}
	c.at += uintptr(n)
	c.rest -= n
	c.part = !a.ends
	if err := c.startReads(); err != nil {
		return err
	}
	c.advance()
	return nil
}

// unmapped ends the connection: the user's memory is not there.
func (c *carrier) unmapped(addr uintptr) error {
	c.broken = fmt.Errorf("%w: %v: %v: the memory at %#x is registered but not mapped", fault.ErrUsage, c.lane.Conn, c.lane, addr)
	c.lane.Conn.Owner.Fail(c.broken)
	return nil
}

// readOn has as much read as may be at a time.
func (c *carrier) startReads() error {
	for ; c.readsStarted < c.next-1; c.readsStarted++ {
		a := &c.arrivals[(c.readsStarted+1)%hop.Forth]
		if a.done {
			continue
		}
		if c.reading == c.maxReads {
			return nil
		}
		if err := c.half.Read(uint32(c.readsStarted+1), a.to, a.from, c.ring.Key); err != nil {
			return err
		}
		c.reading++
	}
	return nil
}

// read heeds that a frame's bytes have been read.
func (c *carrier) finishRead(number uint32) {
	c.reading--
	c.arrivals[uint64(number)%hop.Forth].done = true
	if c.alive() {
		if err := c.startReads(); err != nil {
			c.fail(c.wrap(err))
		}
	}
	c.advance()
}

// advance tells of the parts that are whole, in order.
func (c *carrier) advance() {
	for c.delivered < c.next-1 {
		a := &c.arrivals[(c.delivered+1)%hop.Forth]
		if !a.done {
			return
		}
		c.delivered++
		if a.ends {
			c.lane.Conn.Sink.Arrived(c.lane, a.imm, int64(a.size))
		}
	}
}

// abandon says of the parts that have begun to arrive that they will not end here: the
// adapter is done with them.
func (c *carrier) dropUnfinished() {
	if c.lane.Conn.Sending {
		return
	}
	for last := c.next - 1; c.delivered < last; c.delivered++ {
		if a := &c.arrivals[(c.delivered+1)%hop.Forth]; a.ends {
			c.lane.Conn.Sink.Dropped(c.lane, a.imm)
		}
	}
	if c.part {
		c.lane.Conn.Sink.Dropped(c.lane, uint32(c.socket[0]))
		c.part = false
	}
}

// Owes reports whether the last relay may not have been told of all that has arrived: the
// sender would not hear of it before somebody calls again. A credit that is under way may
// fail, and the lane with it, which only a look shows.
func (c *carrier) HasPendingOutput() bool {
	return !c.lane.Conn.Sending && c.lane.InService() && c.alive() && !c.half.Told(c.delivered, c.delivered)
}
