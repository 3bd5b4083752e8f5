package engine

import (
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// stream is one direction of a circuit: frames come from one side and go on at the other.
type stream struct {
	joint *joint
	forth bool // from the sender

	ring             []byte // where they come
	heads            [][hop.HeaderSize]byte
	lent             handshake.Ring // to who writes it
	read             handshake.Ring // to who reads it
	ringKey, headKey uint32         // of where they go on

	next   uint64            // that is to come
	frames [hop.Back]passing // that are not freed, by sequence
	out    hop.Window
}

// passing is a frame at the relay.
type passing struct {
	place  uint32
	length int // of the payload
}

// complete heeds a completion of the circuit's.
func (j *joint) complete(wc *ibv.WC, work hop.Work, i int, number uint32) {
	j.mu.Lock()
	h := j.sides[i].Half
	if j.down || h.Num() != wc.QPNum {
		j.mu.Unlock()
		return // of one that is destroyed
	}
	h.Polled(work)
	if j.stopped && j.rests() {
		select {
		case j.drained <- struct{}{}:
		default:
		}
	}
	var err error
	switch {
	case j.dropped != nil:
	case wc.Status != ibv.IBV_WC_SUCCESS:
		if err = wc.Err(j.sides[i].leg.Name); wc.Status == ibv.IBV_WC_WR_FLUSH_ERR {
			err = lane.Flushed{Cause: err}
		}
	case work == hop.WorkRecv:
		err = j.received(wc, i, number)
	case work == hop.WorkFrame:
		err = j.streams[1-i].sent()
	}
	if err == nil && j.dropped == nil {
		err = j.tell()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", j.name(i), err)
		j.dropped = err
		j.beginToLower()
	}
	j.mu.Unlock()
	if err != nil {
		j.tellEnded(err)
	}
}

// received heeds what has come from a side, and posts the receive again.
func (j *joint) received(wc *ibv.WC, i int, number uint32) error {
	imm, ok := hop.Imm(wc)
	if !ok {
		return errors.New("a message arrived without an immediate")
	}
	var err error
	switch {
	case !hop.IsCredit(imm):
		err = j.streams[i].came(imm, wc.ByteLen)
	case wc.ByteLen != 0:
		err = fmt.Errorf("a credit has %d bytes", wc.ByteLen)
	default: // it is of what goes there
		s := &j.streams[1-i]
		if err = s.out.Heed(imm); err == nil {
			err = s.goOn()
		}
	}
	if err != nil {
		return err
	}
	return j.sides[i].PostReceive(number)
}

// came takes in a frame: copies its header, checks that, and sends it on.
func (s *stream) came(place, bytes uint32) error {
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
	s.frames[s.next%hop.Back] = passing{place, int(h.Length)}
	s.next++
	return s.goOn()
}

// most is how many frames may come that have not been freed.
func (s *stream) most() int {
	if s.forth {
		return hop.Forth
	}
	return hop.Back
}

// freed is how many frames are of no more use here: that have gone on, and that the receiver
// has read where it does.
func (s *stream) freed() uint64 {
	if s.forth && s.joint.how.Last {
		return min(s.out.Done, s.out.Freed)
	}
	return s.out.Done
}

// to is the side at which the stream goes on.
func (s *stream) to() *side {
	if s.forth {
		return &s.joint.sides[behind]
	}
	return &s.joint.sides[before]
}

// goOn sends on what there is room for: into the next ring, or whole, or the header of
// what the receiver reads.
func (s *stream) goOn() error {
	for s.out.Sent < s.next-1 {
		seq := s.out.Sent + 1
		f := &s.frames[seq%hop.Back]
		place, ok := s.out.Take(hop.HeaderSize + f.length)
		if !ok {
			return nil
		}
		head := hop.Piece{Addr: ibv.AddrOf(&s.heads[seq%uint64(len(s.heads))][0]), Length: hop.HeaderSize, Key: s.headKey}
		var payload hop.Piece
		if !s.forth || !s.joint.how.Last || f.length <= hop.Small {
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

// sent heeds that a frame has gone on.
func (s *stream) sent() error {
	s.out.Complete()
	length := s.frames[s.out.Done%hop.Back].length
	e := s.joint.engine
	e.Frames.Add(1)
	e.Bytes.Add(uint64(length))
	if moved := s.joint.how.Moved; moved != nil {
		if s.forth {
			moved(uint64(length), 0)
		} else {
			moved(0, uint64(length))
		}
	}
	return s.goOn()
}

// tell credits both sides with what has moved.
func (j *joint) tell() error {
	for i := range j.streams {
		s := &j.streams[i]
		every := uint64(1)
		if !s.forth {
			every = hop.BackEvery
		}
		if err := j.sides[i].Tell(s.freed(), s.out.Delivered, every); err != nil {
			return err
		}
	}
	return nil
}
