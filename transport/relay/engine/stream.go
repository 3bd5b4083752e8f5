package engine

import (
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// stream is one direction of a circuit: frames arrive on one side and are sent on the other.
type stream struct {
	circuit *circuit
	forth   bool // from the sender towards the receiver

	ring             []byte // where frames arrive
	heads            [][hop.HeaderSize]byte
	writeRing        handshake.Ring // for the process that writes the ring
	readRing         handshake.Ring // for the process that reads the ring
	ringKey, headKey uint32         // for sending on the other side

	next   uint64          // sequence number of the next frame to arrive
	frames [hop.Back]frame // frames that are not freed, by sequence number
	out    hop.Window
}

// frame is a frame at the relay.
type frame struct {
	place  uint32 // place in the ring, in units
	length int    // bytes of the payload
}

// complete handles a completion of the circuit.
func (c *circuit) complete(wc *ibv.WC, work hop.Work, i int, number uint32) {
	c.mu.Lock()
	h := c.sides[i].Endpoint
	if c.destroyed || h.Num() != wc.QPNum {
		c.mu.Unlock()
		return // of a queue pair that is destroyed
	}
	h.Polled(work)
	if c.stopped && c.allPolled() {
		select {
		case c.drained <- struct{}{}:
		default:
		}
	}
	var err error
	switch {
	case c.dropped != nil:
	case wc.Status != ibv.IBV_WC_SUCCESS:
		if err = wc.Err(c.sides[i].leg.Name); wc.Status == ibv.IBV_WC_WR_FLUSH_ERR {
			err = lane.Flushed{Cause: err}
		}
	case work == hop.WorkRecv:
		err = c.received(wc, i, number)
	case work == hop.WorkFrame:
		err = c.streams[1-i].sent()
	}
	if err == nil && c.dropped == nil {
		err = c.sendCredits()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.name(i), err)
		c.dropped = err
		c.startTeardown()
	}
	c.mu.Unlock()
	if err != nil {
		c.reportEnd(err)
	}
}

// received handles a message that arrived on a side, and posts the receive again.
func (c *circuit) received(wc *ibv.WC, i int, number uint32) error {
	imm, ok := hop.Imm(wc)
	if !ok {
		return errors.New("a message arrived without an immediate")
	}
	var err error
	switch {
	case !hop.IsCredit(imm):
		err = c.streams[i].frameArrived(imm, wc.ByteLen)
	case wc.ByteLen != 0:
		err = fmt.Errorf("a credit has %d bytes", wc.ByteLen)
	default: // a credit for the frames of the opposite direction, which were sent on this side
		s := &c.streams[1-i]
		if err = s.out.HandleCredit(imm); err == nil {
			err = s.sendFrames()
		}
	}
	if err != nil {
		return err
	}
	return c.sides[i].PostReceive(number)
}

// frameArrived accepts a frame: it copies and checks the header, and sends the frame on.
func (s *stream) frameArrived(place, bytes uint32) error {
	at := uint64(place) * hop.Unit
	if bytes < hop.HeaderSize || at+uint64(bytes) > uint64(len(s.ring)) {
		return fmt.Errorf("%d bytes arrived at %d, in a ring of %d", bytes, at, len(s.ring))
	}
	if s.next-1-s.freed() >= uint64(s.most()) {
		return fmt.Errorf("frame %d arrived while %d before it are not freed", s.next, s.next-1-s.freed())
	}
	head := &s.heads[s.next%uint64(len(s.heads))]
	copy(head[:], s.ring[at:])
	h, err := hop.Decode(head)
	if err != nil {
		return err
	}
	if err := h.Check(s.next, place, uint32(len(s.ring)), bytes, uint32(len(s.ring))); err != nil {
		return err
	}
	if !s.out.Fits(int(bytes)) {
		return fmt.Errorf("frame %d of %d bytes is longer than the next ring", h.Seq, h.Length)
	}
	s.frames[s.next%hop.Back] = frame{place, int(h.Length)}
	s.next++
	return s.sendFrames()
}

// most returns how many frames may be in the ring without being freed.
func (s *stream) most() int {
	if s.forth {
		return hop.Forth
	}
	return hop.Back
}

// freed returns how many frames do not need their ring space any more: they were sent on, and the receiver has read
// those that it reads from the ring.
func (s *stream) freed() uint64 {
	if s.forth && s.circuit.pair.Last {
		return min(s.out.Done, s.out.Freed)
	}
	return s.out.Done
}

// to returns the side on which the stream's frames are sent on.
func (s *stream) to() *side {
	if s.forth {
		return &s.circuit.sides[towardsReceiver]
	}
	return &s.circuit.sides[towardsSender]
}

// sendFrames sends on the frames that the window has room for: written into the next ring, sent whole to the receiver,
// or only the header if the receiver reads the payload.
func (s *stream) sendFrames() error {
	for s.out.Sent < s.next-1 {
		seq := s.out.Sent + 1
		f := &s.frames[seq%hop.Back]
		place, ok := s.out.Take(hop.HeaderSize + f.length)
		if !ok {
			return nil
		}
		head := hop.Piece{Addr: ibv.AddrOf(&s.heads[seq%uint64(len(s.heads))][0]), Length: hop.HeaderSize, Key: s.headKey}
		var payload hop.Piece
		if !s.forth || !s.circuit.pair.Last || f.length <= hop.Small {
			payload = hop.Piece{Length: f.length, Key: s.ringKey}
			if f.length > 0 {
				payload.Addr = ibv.AddrOf(&s.ring[int(f.place)*hop.Unit+hop.HeaderSize])
			}
		}
		if err := s.to().Frame(&s.out, place, f.place, head, payload); err != nil {
			return err
		}
	}
	return nil
}

// sent handles the completion of a frame that was sent on.
func (s *stream) sent() error {
	s.out.Complete()
	length := s.frames[s.out.Done%hop.Back].length
	f := s.circuit.forwarder
	f.Frames.Add(1)
	f.Bytes.Add(uint64(length))
	if moved := s.circuit.pair.Moved; moved != nil {
		if s.forth {
			moved(uint64(length), 0)
		} else {
			moved(0, uint64(length))
		}
	}
	return s.sendFrames()
}

// sendCredits sends credits on both sides for the frames that were freed or delivered.
func (c *circuit) sendCredits() error {
	for i := range c.streams {
		s := &c.streams[i]
		every := uint64(1)
		if !s.forth {
			every = hop.BackEvery
		}
		if err := c.sides[i].SendCredit(s.freed(), s.out.Delivered, every); err != nil {
			return err
		}
	}
	return nil
}
