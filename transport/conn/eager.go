package conn

import (
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Short messages over TCP do not wait for a grant: see lane.Eager. Their sender has
// a copy until it is told that the receiver's program has them, so that a send is done once
// the kernel has the message, whatever becomes of the lane. A receiver to which they come
// keeps its grants back until the sender asks for them, which it does for a message that
// cannot go so.

// eager is the sender's side of eager messages.
type eager struct {
	sent              uint64 // so far
	unmatched         int    // of which it has not been told that they are in their buffers
	grantsRequestedAt uint64 // that were sent when grants were asked for last
	wantSentAt        uint64 // and when the receiver was told so by the session
	knownBefore       uint64 // a sequence: what is to be known of the receives before it is
	header            lane.Eager
}

// canSendEager reports whether a message of size bytes may go eagerly.
func (s *Sender) canSendEager(size int) bool {
	return size <= lane.EagerSize && s.traits.Eager && !s.resendPending
}

// canSkipGrants reports whether there is no use in looking for grants, or word of eager messages,
// before a message goes eagerly.
func (s *Sender) canSkipGrants(tag int32) bool {
	return s.eager.unmatched > 0 && s.eager.unmatched < lane.EagerWindow/2 && !s.eagerRequest(s.eager.sent+1).active && s.openEager(tag) != nil
}

// openEager is an eager message of that tag of which it is not known where it is, or nil.
func (s *Sender) openEager(tag int32) *Request {
	if s.eager.unmatched == 0 {
		return nil
	}
	for i := range s.requests[lane.Window:] {
		if q := &s.requests[lane.Window+i]; q.active && q.sent.tag == tag {
			return q
		}
	}
	return nil
}

// isendEager sends a message before its grant, or returns nil when it cannot now.
func (s *Sender) isendEager(addr uintptr, size int, tag int32, r *lane.Region) (*Request, error) {
	number := s.eager.sent + 1
	q, l := s.eagerRequest(number), s.firstLane()
	if q.active || l == nil || !s.reclaim() {
		if q.active {
			s.noteWait()
			if q.sent.tag != tag { // whose receive may come after this one's
				s.requestGrants()
			}
		}
		return nil, s.Ended()
	}
	room, _ := s.Ring.Eager(number)
	if !lane.CopyIn(room[:size], addr) {
		s.Fail(fmt.Errorf("%w: %v: send: the memory at %#x is registered but not mapped", fault.ErrUsage, s, addr))
		return nil, s.Ended()
	}
	head := uint32(s.eager.knownBefore)
	if other := s.openEager(tag); other != nil {
		head = other.sent.head
	}
	s.eager.sent = number
	s.eager.unmatched++
	q.active, q.n, q.gen = true, 1, number
	q.sent.last, q.sent.lost, q.sent.sizes[0], q.sent.tag, q.sent.head = 0, 0, uint32(size), tag, head
	s.sendEager(l, q)
	req := s.startRequest(size, 1, 0, r)
	req.remaining = 0
	if req.trace != nil {
		req.trace.add(l, 0, 0, size)
		req.trace.end(0, 0)
	}
	req.complete()
	s.countSent(size)
	return s.show(req), nil
}

// eagerRequest is the request that stands for an eager message. Its owner is the connection, and
// its generation the message's number.
func (s *Sender) eagerRequest(number uint64) *Request {
	return &s.requests[lane.Window+number%lane.EagerWindow]
}

// isEager reports whether a send is one.
func (r *Request) isEager() bool { return r.index >= lane.Window }

// sendEager gives a lane an eager message, of which there is a copy.
func (s *Sender) sendEager(l *lane.Lane, q *Request) {
	s.posted++
	q.remaining, q.sent.number, q.sent.lanes[0] = 1, s.posted, l.Index
	s.eager.header = lane.Eager{Number: uint32(q.gen) & (1<<lane.EagerBits - 1), Tag: q.sent.tag, Head: q.sent.head}
	_, addr := s.Ring.Eager(q.gen)
	s.part = lane.Part{Request: q.index, Eager: &s.eager.header, Local: addr, Size: int(q.sent.sizes[0])}
	if err := l.Carrier.Send(&s.part); err != nil {
		l.Break(err)
	}
	l.Bytes.Add(uint64(s.part.Size))
	l.Parts.Add(1)
}

// eagerDelivered notes that an eager message has reached the peer. The copy stays until its
// program has it; the lane is waited for no more.
func (s *Sender) eagerDelivered(l *lane.Lane, request int) {
	q := &s.requests[request]
	q.remaining = 0
	l.Delivered++
	l.Latest = max(l.Latest, q.sent.number)
}

// requestGrants asks for grants, where the receiver may keep them back.
func (s *Sender) requestGrants() {
	if s.eager.sent == s.eager.grantsRequestedAt || s.resendPending {
		return
	}
	if l := s.firstLane(); l != nil {
		s.eager.grantsRequestedAt = s.eager.sent
		s.eager.header = lane.Eager{Number: uint32(s.eager.sent) & (1<<lane.EagerBits - 1), Ask: true}
		s.part = lane.Part{Request: lane.NoRequest, Eager: &s.eager.header}
		if err := l.Carrier.Send(&s.part); err != nil {
			l.Break(err)
		}
	}
}

// wantAfter is how long a message waits until the receiver is told by the session: it sees
// what a lane brings only when its program looks at that connection, and that may wait for
// another one.
const wantAfter = time.Millisecond

// requestGrantsBySession tells the receiver that a message waits.
func (s *Sender) requestGrantsBySession() {
	switch {
	case s.eager.sent == s.eager.wantSentAt:
		return
	case s.waitingSince.IsZero():
		s.waitingSince = time.Now()
		return
	case time.Since(s.waitingSince) < wantAfter:
		return
	}
	s.eager.wantSentAt = s.eager.sent
	s.sendOrFail(&handshake.Want{Conn: s.ID, Eager: s.eager.sent})
}

// firstLane is the first lane in service, if it has room for a part: all eager messages go over
// one lane while that lasts.
func (s *Sender) firstLane() *lane.Lane {
	for _, l := range s.lanes {
		if !l.InService() {
			continue
		}
		ok, err := l.Carrier.Room(0)
		if err != nil {
			l.Break(err)
		}
		if ok && err == nil {
			return l
		}
		return nil
	}
	return nil
}

// EagerMatched notes in which buffer an eager message is.
func (s outgoing) EagerMatched(t lane.EagerMatch) error {
	q, seq := s.eagerRequest(t.Number), lane.Sequence(t.Seq, s.head)
	if q.active && q.gen == t.Number {
		s.advanceTo(seq)
	}
	m := &s.masks[lane.SlotOf(seq)]
	switch {
	case t.Number == 0 || t.Number > s.eager.sent:
		return fmt.Errorf("eager message %d is reported in its buffer; only %d were sent", t.Number, s.eager.sent)
	case !q.active || q.gen != t.Number: // said again, as a lane has failed
		return nil
	case seq >= s.head+lane.Window, seq+2*lane.Window < s.head, m.seq == seq && m.taken&(1<<t.Sub) != 0:
		return fmt.Errorf("eager message %d is reported in buffer %d of receive %d, which has a message; receive %d is next", t.Number, t.Sub, seq, s.head)
	}
	q.active = false
	if s.eager.unmatched--; seq >= s.head { // else a grant has said so before
		s.markTaken(seq, t.Sub, t.N)
	}
	return nil
}

// advanceTo notes that the receiver speaks of a receive: the one before in its slot is complete.
// What it says of eager messages may come later, or be lost with a lane.
func (s *Sender) advanceTo(seq uint64) {
	if ahead := seq - s.head; s.eager.unmatched > 0 && ahead >= lane.Window && ahead < lane.Window+lane.EagerWindow {
		s.head = seq - lane.Window + 1
	}
}

// settleEager settles an eager message that may have gone over a lane that is down at both
// ends.
func (s *Sender) settleEager(l *lane.Lane, m *handshake.Report, q *Request) {
	ahead := q.gen - m.Eager - 1
	arrived := q.gen <= m.Eager || ahead < lane.EagerWindow && m.Ahead&(1<<ahead) != 0
	if q.sent.lanes[0] == l.Index && !arrived {
		q.sent.lost, s.resendPending = 1, true
	}
}

// resendEager sends a lost eager message again, and reports false when there is no lane
// with room.
func (s *Sender) resendEager(q *Request) bool {
	l := s.firstLane()
	if l == nil {
		return false
	}
	q.sent.lost = 0
	s.sendEager(l, q)
	l.Resent.Add(uint64(q.sent.sizes[0]))
	s.Count.Resent.Add(uint64(q.sent.sizes[0]))
	return true
}
