package conn

import (
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Short messages over TCP do not wait for a grant: see lane.Eager. The sender keeps a copy of each
// until the receiver reports it matched, so that a send is done once the kernel has the message,
// even if the lane fails. A receiver of eager messages defers its grants until the sender requests
// them, which it does for a message that cannot be sent eagerly.

// eager is the sender's state of eager messages.
type eager struct {
	sent              uint64     // number of the last message
	unmatched         int        // messages that the receiver has not reported matched
	grantsRequestedAt uint64     // value of sent when grants were last requested over a lane
	wantSentAt        uint64     // value of sent when grants were last requested over the session
	knownBefore       uint64     // sequence of a receive: match has seen the grants of all receives before it
	header            lane.Eager // scratch space for sendEager and requestGrants
}

// canSendEager reports whether a message of size bytes may be sent eagerly.
func (s *Sender) canSendEager(size int) bool {
	return size <= lane.EagerSize && s.traits.Eager && !s.resendPending
}

// canSkipGrants reports whether an eager message can be sent without polling for grants and match reports
// first: match finds no grant while an unmatched message of the same tag is in flight, and there are enough
// free copies.
func (s *Sender) canSkipGrants(tag int32) bool {
	return s.eager.unmatched > 0 && s.eager.unmatched < lane.EagerWindow/2 && !s.eagerRequest(s.eager.sent+1).active && s.openEager(tag) != nil
}

// openEager returns an unmatched eager message of that tag, or nil.
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

// isendEager sends a message before its grant. It returns nil if that is not possible now.
func (s *Sender) isendEager(addr uintptr, size int, tag int32, r *lane.Region) (*Request, error) {
	number := s.eager.sent + 1
	q, l := s.eagerRequest(number), s.firstLane()
	if q.active || l == nil || !s.reclaim() {
		if q.active {
			s.noteWait()
			if q.sent.tag != tag { // the program may post the receive of q only after that of this message
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
	q.sent.Begin(1)
	q.sent.sizes[0], q.sent.tag, q.sent.head = uint32(size), tag, head
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

// eagerRequest returns the request that represents eager message number, whose copy it keeps. Only the
// connection sees it. Its generation is the message's number.
func (s *Sender) eagerRequest(number uint64) *Request {
	return &s.requests[lane.Window+number%lane.EagerWindow]
}

// isEager reports whether a request represents an eager message.
func (r *Request) isEager() bool { return r.index >= lane.Window }

// sendEager sends the copy of an eager message over a lane.
func (s *Sender) sendEager(l *lane.Lane, q *Request) {
	s.posted++
	q.remaining, q.sent.number, q.sent.Lanes[0] = 1, s.posted, l.Index
	s.eager.header = lane.Eager{Number: uint32(q.gen) & (1<<lane.EagerBits - 1), Tag: q.sent.tag, Head: q.sent.head}
	_, addr := s.Ring.Eager(q.gen)
	s.part = lane.Part{Request: q.index, Eager: &s.eager.header, Local: addr, Size: int(q.sent.sizes[0])}
	if err := l.Carrier.Send(&s.part); err != nil {
		l.Break(err)
	}
	l.Bytes.Add(uint64(s.part.Size))
	l.Parts.Add(1)
}

// eagerDelivered notes that an eager message has reached the peer's kernel. The copy is kept until the
// receiver reports the message matched.
func (s *Sender) eagerDelivered(l *lane.Lane, request int) {
	q := &s.requests[request]
	q.remaining = 0
	l.Delivered++
	l.Latest = max(l.Latest, q.sent.number)
}

// requestGrants asks the receiver over a lane for deferred grants, once for each eager message.
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

// wantAfter is how long a message waits before the sender requests grants over the session too. The receiver
// reads a lane only while its program tests a request of that connection, and the program may be waiting for
// another connection.
const wantAfter = time.Millisecond

// requestGrantsBySession asks the receiver over the session for deferred grants, if the next message has
// waited for wantAfter, once for each eager message.
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

// firstLane returns the first lane in service, or nil if there is none or it has no room. All eager messages
// use the same lane while it is in service.
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

// EagerMatched handles the receiver's report that an eager message is in its buffer.
func (s outgoing) EagerMatched(t lane.EagerMatch) error {
	q, seq := s.eagerRequest(t.Number), lane.Sequence(t.Seq, s.head)
	if q.active && q.gen == t.Number {
		s.advanceTo(seq)
	}
	m := &s.masks[lane.SlotOf(seq)]
	switch {
	case t.Number == 0 || t.Number > s.eager.sent:
		return fmt.Errorf("eager message %d is reported in its buffer; only %d were sent", t.Number, s.eager.sent)
	case !q.active || q.gen != t.Number: // repeated, because a lane has failed
		return nil
	case seq >= s.head+lane.Window, seq+2*lane.Window < s.head, m.seq == seq && m.taken&(1<<t.Sub) != 0:
		return fmt.Errorf("eager message %d is reported in buffer %d of receive %d, which has a message; receive %d is next", t.Number, t.Sub, seq, s.head)
	}
	q.active = false
	if s.eager.unmatched--; seq >= s.head { // a later grant may have advanced head already
		s.markTaken(seq, t.Sub, t.N)
	}
	return nil
}

// advanceTo advances head because the receiver has used the slot of receive seq: the receive before it in
// that slot is complete. The report of its eager message may arrive later, or be lost with a lane.
func (s *Sender) advanceTo(seq uint64) {
	if ahead := seq - s.head; s.eager.unmatched > 0 && ahead >= lane.Window && ahead < lane.Window+lane.EagerWindow {
		s.head = seq - lane.Window + 1
	}
}

// settleEager marks an eager message as lost if it was sent over l and has not arrived. l is drained at both
// ends, and m is the receiver's report about it.
func (s *Sender) settleEager(l *lane.Lane, m *handshake.Report, q *Request) {
	ahead := q.gen - m.Eager - 1
	arrived := q.gen <= m.Eager || ahead < lane.EagerWindow && m.Ahead&(1<<ahead) != 0
	if q.sent.Lanes[0] == l.Index && !arrived {
		q.sent.Lost, s.resendPending = 1, true
	}
}

// resendEager sends a lost eager message again. It returns false if no lane has room.
func (s *Sender) resendEager(q *Request) bool {
	l := s.firstLane()
	if l == nil {
		return false
	}
	q.sent.Lost = 0
	s.sendEager(l, q)
	l.Resent.Add(uint64(q.sent.sizes[0]))
	s.Count.Resent.Add(uint64(q.sent.sizes[0]))
	return true
}
