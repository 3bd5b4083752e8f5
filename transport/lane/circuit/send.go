package circuit

import (
	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// minFrame is the least size in bytes of the frames into which a part is divided to keep idle hops busy.
const minFrame = 16 << 10

// outgoing holds the parts on the sender's side of a circuit, from when they are posted until they are
// delivered.
type outgoing struct {
	parts      [lane.Window]sentPart // a ring
	oldest     int                   // index in the ring of the first part that is not delivered
	framed     int                   // parts from oldest on whose frames have all been sent
	queued     int                   // parts behind those
	maxPayload int                   // bytes of a frame's payload, at most
	heads      []byte                // headers of the frames in flight; at the receiver the frames that are sent back
}

// sentPart is a part that is not delivered.
type sentPart struct {
	request, part int
	local         uintptr
	lkey          uint32
	size, sent    int
	frame         int       // payload bytes of each frame
	socket        [2]uint64 // the part's header in the format of package tcp
	last          uint64    // sequence of its last frame
}

// Reaches returns true, because the receiver places arriving parts itself.
func (c *carrier) Reaches(*lane.Grant) bool { return true }

// Room reports whether another part can be queued.
func (c *carrier) Room(int) (bool, error) { return c.framed+c.queued < lane.Window, nil }

// undelivered reports whether any part is not delivered.
func (c *carrier) undelivered() bool { return c.framed+c.queued > 0 }

// Send queues a part and sends the frames that the window has room for. If nothing is in flight the part is
// divided into small frames, so that several hops work at the same time.
func (c *carrier) Send(p *lane.Part) error {
	q := &c.parts[(c.oldest+c.framed+c.queued)%lane.Window]
	code, offset := p.PlacedHeader()
	*q = sentPart{
		request: p.Request, part: int(p.Imm.Part), local: p.Local, size: p.Size, frame: c.maxPayload,
		socket: [2]uint64{uint64(code) | uint64(p.Size)<<32, offset},
	}
	if p.Size > 0 {
		q.lkey = p.Region.LKeys[c.domain.place]
	}
	if c.queued == 0 && c.out.Sent == c.out.Delivered {
		quarter := (p.Size/4 + lane.PartAlign - 1) &^ (lane.PartAlign - 1)
		q.frame = min(c.maxPayload, max(quarter, minFrame))
	}
	c.queued++
	return c.flushParts()
}

// flushParts sends the queued frames that the window has room for.
func (c *carrier) flushParts() error {
	for c.queued > 0 {
		q := &c.parts[(c.oldest+c.framed)%lane.Window]
		n := min(q.size-q.sent, q.frame)
		h := hop.Header{Length: uint32(n), Kind: hop.Begin, Socket: q.socket}
		if q.sent > 0 {
			h.Kind = hop.More
		}
		ok, err := c.frame(&h, hop.Piece{Addr: q.local + uintptr(q.sent), Length: n, Key: q.lkey})
		if !ok || err != nil {
			return err
		}
		if q.sent += n; q.sent == q.size {
			q.last = c.out.Sent
			c.framed++
			c.queued--
		}
	}
	return nil
}

// frame sends a frame. It returns false if the window has no room.
func (c *carrier) frame(h *hop.Header, payload hop.Piece) (ok bool, err error) {
	place, ok := c.out.Take(hop.HeaderSize + payload.Length)
	if !ok {
		return false, nil
	}
	h.Seq = c.out.Sent
	head := c.heads[h.Seq%hop.Forth*hop.HeaderSize:]
	h.Encode(head)
	if err := c.half.Frame(&c.out, place, 0, hop.Piece{Addr: ibv.AddrOf(&head[0]), Length: hop.HeaderSize, Key: c.mr.LKey()}, payload); err != nil {
		return false, c.wrap(err)
	}
	return true, nil
}

// completeParts reports delivered parts to the message layer.
func (c *carrier) completeParts() {
	if !c.lane.Conn.Sending {
		return
	}
	for arrived := c.out.Arrived(); c.framed > 0; {
		q := &c.parts[c.oldest]
		if q.last > arrived {
			return
		}
		c.oldest = (c.oldest + 1) % lane.Window
		c.framed--
		c.lane.Conn.Sink.Delivered(c.lane, q.request, q.part)
	}
}
