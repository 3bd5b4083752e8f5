package circuit

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// incoming is the receiver's side of a circuit: the part that is arriving, and the frames whose bytes are not
// in the user's buffer yet.
type incoming struct {
	ring     handshake.Ring // the last relay's ring, which holds large frames
	maxReads int            // READs that may be outstanding

	part   bool      // a part is arriving
	socket [2]uint64 // the part's header
	at     uintptr   // address of the part's next byte
	rest   int       // bytes of the part that have not arrived
	region *lane.Region

	arrivals     [hop.Forth]arrival // by sequence
	delivered    uint64             // frames whose bytes are in the user's buffer
	readsStarted uint64             // frames that need no READ or whose READ was posted
	reading      int                // READs outstanding
	copying      int                // READs of this node's own receives outstanding

	grants
}

// arrival is a frame that has arrived.
type arrival struct {
	done bool   // its bytes are in the user's buffer
	from uint64 // address of its bytes, if not done: in the last relay's memory, or in the receive if held
	held bool   // its receive is not posted again before its bytes are in the user's buffer
	slot uint32 // number of the receive
	to   hop.Piece
	ends bool // the frame completes a part, with the immediate and size below
	imm  uint32
	size uint32
}

// place handles a frame of a part that arrived in receive slot: it checks the frame against the grants, copies a small
// frame's bytes, and starts a READ of a large frame's bytes. A small frame's bytes go to GPU memory by a READ too, which
// the adapter makes of the receive.
func (c *carrier) place(h *hop.Header, place, slot uint32) error {
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
		if !ok { // Place has ended the connection
			c.lane.Deactivate()
			return nil
		}
		c.part, c.socket, c.at, c.rest, c.region = true, h.Socket, addr, int(size), r
	}
	n := int(h.Length)
	if n > c.rest || n == 0 && c.rest > 0 {
		return fmt.Errorf("frame %d has %d bytes of a part of which %d are missing", h.Seq, n, c.rest)
	}
	a := &c.arrivals[h.Seq%hop.Forth]
	*a = arrival{imm: imm, size: size, ends: n == c.rest}
	switch {
	case n > hop.Small:
		a.from, a.to = c.ring.Base+uint64(place)*hop.Unit+hop.HeaderSize, c.piece(n)
	case n > 0 && c.region != nil && c.region.Kind == lane.GPUMemory:
		payload := c.half.Slot(slot)[hop.HeaderSize:]
		a.from, a.to, a.held, a.slot = uint64(ibv.AddrOf(&payload[0])), c.piece(n), true, slot
	case !lane.CopyOut(c.at, c.half.Slot(slot)[hop.HeaderSize:][:n]):
		return c.unmapped(c.at)
	default:
		a.done = true
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

// piece returns the next n bytes of the part's buffer.
func (c *carrier) piece(n int) hop.Piece {
	p := hop.Piece{Addr: c.at, Length: n}
	if c.region != nil {
		p.Key = c.region.LKeys[c.domain.place]
	}
	return p
}

// unmapped ends the connection, because the user's memory at addr is not mapped.
func (c *carrier) unmapped(addr uintptr) error {
	c.broken = fmt.Errorf("%w: %v: %v: the memory at %#x is registered but not mapped", fault.ErrUsage, c.lane.Conn, c.lane, addr)
	c.lane.Conn.Owner.Fail(c.broken)
	return nil
}

// startReads posts READs for the frames that need one, up to maxReads at a time.
func (c *carrier) startReads() error {
	for ; c.readsStarted < c.next-1; c.readsStarted++ {
		a, number := &c.arrivals[(c.readsStarted+1)%hop.Forth], uint32(c.readsStarted+1)
		switch {
		case a.done:
		case a.held && !c.domain.loop.Room(), !a.held && c.reading == c.maxReads:
			return nil
		case a.held:
			if err := c.domain.loop.Copy(c, number, a.to.Addr, a.to.Key, uintptr(a.from), c.mr.RKey(), a.to.Length); err != nil {
				return err
			}
			c.copying++
		default:
			if err := c.half.Read(number, a.to, a.from, c.ring.Key); err != nil {
				return err
			}
			c.reading++
		}
	}
	return nil
}

// Copied handles the end of a READ of a receive, which is posted again.
func (c *carrier) Copied(number uint32, err error) {
	c.copying--
	a := &c.arrivals[uint64(number)%hop.Forth]
	if err == nil {
		a.done = true
	}
	if c.alive() {
		if err == nil {
			err = c.half.PostReceive(a.slot)
		}
		if err == nil {
			err = c.startReads()
		}
		if err != nil {
			c.fail(c.wrap(err))
		}
	}
	c.advance()
}

// finishRead handles the completion of a frame's READ.
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

// advance reports completed parts to the message layer, in the order of their frames.
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

// dropUnfinished reports to the message layer that the parts which have begun to arrive will not be completed
// on this lane. The adapter must have finished with them.
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

// HasPendingOutput reports whether the last relay may not have received the credit for all frames that were
// delivered, because the credit is not sent or not completed. The sender would wait for it until the next call;
// and a credit that fails breaks the lane, which only a poll detects.
func (c *carrier) HasPendingOutput() bool {
	return !c.lane.Conn.Sending && c.lane.InService() && c.alive() && !c.half.CreditSent(c.delivered, c.delivered)
}
