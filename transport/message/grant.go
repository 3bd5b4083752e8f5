package message

import (
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// match returns the first entry of the head grant that tag fits and no send has
// taken, or nil.
func (s *SendConn) match(tag int32) *lane.Grant {
	if s.b.Traits().Eager {
		return s.matchTag(tag)
	}
	if s.entries == 0 {
		s.entries = s.readGrant()
	}
	for i := range s.entries {
		if g := &s.granted[i]; s.matched&(1<<i) == 0 && int32(g.Tag) == tag {
			return g
		}
	}
	return nil
}

// readGrant copies the head grant's entries once all are there, and returns their
// number. The peer can write the ring at any time: the copy is what is checked and
// used, and nothing is read from the ring again.
func (s *SendConn) readGrant() int {
	slot, n := s.b.Wire.Slot(s.head), 1
	for i := 0; i < n; i++ {
		g := &s.granted[i]
		if !g.CopyFrom(&slot[i], s.head) {
			return 0
		}
		if i == 0 {
			n = int(g.N)
		}
		if n < 1 || n > lane.MaxSubs || int(g.N) != n || int(g.Sub) != i {
			s.b.Fail(fmt.Errorf("%w: %v: grant %d: entry %d says that it is %d of %d", fault.ErrProtocol, s.b, s.head, i, g.Sub, g.N))
			return 0
		}
	}
	return n
}

// Missing looks for a grant that has come after one that has not.
func (s sendHalf) Missing() (seq uint64, index int) {
	wire := s.b.Wire
	if lane.Acquire(&wire.Slot(s.head)[0].Seq) == s.head {
		return 0, 0
	}
	for seq := s.head + 1; seq < s.head+lane.Window; seq++ {
		if e := &wire.Slot(seq)[0]; lane.Acquire(&e.Seq) == seq && e.After > 0 {
			return seq - 1, int(e.After) - 1
		}
	}
	return 0, 0
}

// use marks a grant used; when all of its slot are, the head moves on.
func (s *SendConn) use(g *lane.Grant) {
	if s.b.Traits().Eager {
		s.takes(g.Seq, g.Sub, g.N)
		return
	}
	s.matched |= 1 << g.Sub
	if s.matched == 1<<s.entries-1 {
		s.matched, s.entries = 0, 0
		s.head++
		if !s.b.Traits().Passive { // else every call is Go's
			s.b.Board.Next(s.head)
		}
	}
}

// fetch looks for grants where they do not come by themselves. They come over the
// first lane in service; of the others one at a time is asked whether it still stands.
func (s *SendConn) fetch() {
	lanes := s.b.Lanes()
	if len(lanes) == 0 {
		return
	}
	s.asked++
	other := int(s.asked) % len(lanes)
	first := true
	for i, l := range lanes {
		if !l.InService() || !first && i != other {
			continue
		}
		first = false
		l.Fetch()
		if s.b.Ended() != nil {
			return
		}
	}
}

// sendHalf is a send half, to its bundle.
type sendHalf struct{ *SendConn }

func (s sendHalf) Waiting() bool    { return false }
func (s sendHalf) Outstanding() int { return s.pending }
func (s sendHalf) Moved() uint64    { return s.moved() }
func (s sendHalf) String() string   { return s.figures() }
func (s sendHalf) Abandon()         { s.abandon() }

func (s sendHalf) recycle(r *Request)        { s.SendConn.recycle(r) }
func (s sendHalf) settled(*lane.Region) bool { return false } // its requests are sends
func (s sendHalf) withdraw(*lane.Region)     {}

// Granted stores a grant as a device would have, sequence last. Once a lane has failed
// grants may be sent again that have come before, and that of an eager message's receive
// may come late.
func (s sendHalf) Granted(seq uint64, entries []lane.Grant) error {
	slot := s.b.Wire.Slot(seq)
	s.reach(seq)
	before := seq < s.head || slot[0].Seq >= seq
	switch {
	case before && seq > 0 && (s.b.Count.Failures.Value() > 0 || s.eager.sent > 0):
		return nil
	case before, seq-s.head >= lane.Window:
		return fmt.Errorf("grant %d is out of turn; %d is next", seq, s.head)
	}
	for i := range entries {
		slot[i] = entries[i]
		slot[i].Seq = seq
	}
	return nil
}

// Delivered counts a part that has reached the peer.
func (s sendHalf) Delivered(l *lane.Lane, request, part int) {
	if request >= lane.Window && s.eager.sent > 0 {
		s.deliveredCopy(l, request)
		return
	}
	if request >= len(s.requests) || !s.requests[request].active || part >= lane.MaxParts || s.requests[request].left&(1<<part) == 0 {
		s.b.Fail(fmt.Errorf("%w: %v: completion for part %d of request %d, which is not outstanding", fault.ErrInternal, s.b, part, request))
		return
	}
	req := &s.requests[request]
	size := int(req.sent.sizes[part])
	l.Backlog -= int64(size)
	l.Delivered++
	l.Latest = max(l.Latest, req.sent.number)
	s.b.Delivers()
	if s.measured(l) && s.measure(l, size) {
		lane.Compare(s.b.Lanes())
	}
	s.deliver(req, part)
}

// deliver takes a part off those that a request waits for.
func (s sendHalf) deliver(r *Request, part int) {
	if r.trace != nil {
		r.trace.end(0, uint8(part))
	}
	if r.left &^= 1 << part; r.left == 0 {
		r.complete()
	}
}

func (s sendHalf) Eager(l *lane.Lane, _ lane.Eager, _ []byte) { s.Arrived(l, 0, 0) }

func (s sendHalf) Arrived(l *lane.Lane, v uint32, _ int64) {
	s.b.Fail(fmt.Errorf("%w: %v: %v: data came to the sender, immediate %#08x", fault.ErrProtocol, s.b, l, v))
}

func (s sendHalf) Place(l *lane.Lane, v uint32, _ uint64, _ uint32) (uintptr, *lane.Region, bool) {
	s.Arrived(l, v, 0)
	return 0, nil, false
}

func (s sendHalf) Dropped(*lane.Lane, uint32) {} // nothing comes to a sender

func (s sendHalf) Regranted(l *lane.Lane, slot uint8) {
	s.b.Fail(fmt.Errorf("%w: %v: %v: completion of grant %d at the sender", fault.ErrInternal, s.b, l, slot))
}
