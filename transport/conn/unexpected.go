package conn

import (
	"errors"
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// unexpected is the receiver's state of eager messages. It holds those that have arrived before their
// receives, whose bytes lie in the control ring, and those that were matched and not reported to the sender
// yet.
type unexpected struct {
	matchedThrough    uint64                         // all messages up to this number are matched
	unreported        int                            // number of matched messages that were not reported to the sender
	grantsRequestedAt uint64                         // number of the last message before the sender's last request for grants
	messages          [lane.EagerWindow]eagerMessage // indexed by number modulo lane.EagerWindow

	doneBefore  uint64 // sequence: all receives before it are complete
	deferGrants bool   // the sender does not wait for grants, so that they are not sent
	deferred    slots  // receives whose grants were not sent

	clampLogged bool // the log has the warning of clamp
}

// eagerMessage is an eager message that has arrived.
type eagerMessage struct {
	number       uint64 // 0: empty
	size         int
	tag          int32
	firstReceive uint64 // sequence of the first receive that it may match
	matched      bool   // copied to its buffer, which is match
	match        lane.EagerMatch
	reported     bool // the match was sent to the sender
}

// deferAfter is how many eager messages must arrive after a request for grants before grants are deferred.
const deferAfter = 4

// entry returns the entry for a message number.
func (s *unexpected) entry(number uint64) *eagerMessage { return &s.messages[number%lane.EagerWindow] }

// next returns the message that follows number, or nil if it has not arrived.
func (s *unexpected) next(number uint64) *eagerMessage {
	if e := s.entry(number + 1); e.number == number+1 {
		return e
	}
	return nil
}

// everUsed reports whether an eager message has ever arrived.
func (s *unexpected) everUsed() bool { return s.entry(s.matchedThrough).number > 0 || s.hasAny() }

// hasAny reports whether a message waits for its receive.
func (s *unexpected) hasAny() bool { return s.next(s.matchedThrough) != nil }

// arrived returns which messages have arrived, in the form of a Report: all up to number all, and a bit in
// ahead for each later one.
func (s *unexpected) arrived() (all uint64, ahead uint16) {
	for n := s.matchedThrough + 1; n <= s.matchedThrough+lane.EagerWindow; n++ {
		if s.entry(n).number == n {
			ahead |= 1 << (n - s.matchedThrough - 1)
		}
	}
	return s.matchedThrough, ahead
}

// Eager handles an eager message, or the sender's request for grants. A peer that breaks the protocol fails
// its own connection only.
func (r incoming) Eager(l *lane.Lane, m lane.Eager, b []byte) {
	s := &r.unexpected
	n, head := lane.EagerNumber(m.Number, s.matchedThrough), lane.Sequence(m.Head, r.next)
	switch {
	case m.Ask:
		r.grantsRequested(n)
		return
	case n <= s.matchedThrough, n > s.matchedThrough+lane.EagerWindow, s.entry(n).number == n:
		r.failEager(l, "eager message %d arrived after %d were received: it is out of order, or arrived twice", n, s.matchedThrough)
		return
	case head == 0, head > r.next:
		r.failEager(l, "eager message %d is for a receive from %d on; %d is next", n, head, r.next)
		return
	}
	*s.entry(n) = eagerMessage{number: n, size: len(b), tag: m.Tag, firstReceive: head}
	room, _ := r.Ring.Eager(n)
	copy(room, b)
	s.deferGrants = s.deferGrants || n >= s.grantsRequestedAt+deferAfter
	r.matchEager(l)
}

// grantsRequested sends deferred grants and reports matched messages, as the sender has requested after its
// eager message n. If a later message has arrived it does nothing, because the sender requests again when it
// needs grants. It is called for requests over a lane and over the session.
func (r *Receiver) grantsRequested(n uint64) {
	s := &r.unexpected
	s.grantsRequestedAt = max(s.grantsRequestedAt, n)
	for i := range s.messages {
		if s.messages[i].number > s.grantsRequestedAt {
			return
		}
	}
	r.reportMatched()
	r.sendDeferredGrants()
}

// sendDeferredGrants queues the deferred grants to be sent by resume, and defers no further ones.
func (r *Receiver) sendDeferredGrants() {
	r.unexpected.deferGrants = false
	for i := range r.requests {
		if req := &r.requests[i]; r.unexpected.deferred.has(i) && req.active && !req.done {
			r.grants.Repeat(uint8(i))
			r.resumePending = true
		}
	}
	r.unexpected.deferred = slots{}
}

// matchEager copies messages to the buffers of their receives, as far as there are any. l is the lane over
// which the last message arrived, or nil.
func (r *Receiver) matchEager(l *lane.Lane) {
	s := &r.unexpected
	for n := s.matchedThrough; ; n++ {
		e := s.next(n)
		if e == nil {
			break
		}
		if req, i := r.findBuffer(e); req != nil && !r.deliverEager(l, req, i, e) {
			return
		}
	}
	for e := s.next(s.matchedThrough); e != nil && e.matched; e = s.next(s.matchedThrough) {
		s.matchedThrough++
	}
	if s.unreported >= lane.EagerWindow/2 || !s.deferGrants {
		r.reportMatched()
	}
}

// findBuffer returns the receive that a message matches and the index of the buffer, or nil if there is none
// yet.
func (r *Receiver) findBuffer(e *eagerMessage) (*Request, int) {
	if e.matched {
		return nil, 0
	}
	s := &r.unexpected
	for s.doneBefore = max(s.doneBefore, r.oldest()); s.doneBefore < r.next; s.doneBefore++ {
		if req := &r.requests[lane.SlotOf(s.doneBefore)]; req.seq == s.doneBefore && !req.done {
			break
		}
	}
	for seq := max(e.firstReceive, s.doneBefore); seq < r.next; seq++ {
		req := &r.requests[lane.SlotOf(seq)]
		if req.seq != seq || req.done || !req.active {
			continue
		}
		slot := r.Ring.Slot(seq)
		for i := range req.n {
			if b := &req.subs[i]; b.begun|b.seen == 0 && int32(slot[i].Tag) == e.tag {
				return req, i
			}
		}
	}
	return nil, 0
}

// deliverEager copies a message to buffer i of a receive. It returns false if that has failed the connection.
func (r *Receiver) deliverEager(l *lane.Lane, req *Request, i int, e *eagerMessage) bool {
	if l == nil {
		l = r.lanes[0] // counts the bytes
	}
	size := r.clamp(e.size, &req.subs[i])
	v := lane.Imm{Slot: lane.SlotOf(req.seq), Sub: uint8(i)}.Encode()
	addr, _, ok := incoming{r}.Place(l, v, 0, uint32(size))
	if !ok {
		return false
	}
	room, _ := r.Ring.Eager(e.number)
	if !lane.CopyOut(addr, room[:size]) {
		r.Fail(fmt.Errorf("%w: %v: %v: receive: the memory at %#x is registered but not mapped", fault.ErrUsage, r, l, addr))
		return false
	}
	e.matched, e.match = true, lane.EagerMatch{Number: e.number, Seq: uint32(req.seq), Sub: uint8(i), N: uint8(req.n)}
	r.unexpected.unreported++
	incoming{r}.Arrived(l, v, int64(size))
	return true
}

// clamp returns the bytes of a message that fit its buffer. The first message that is too large is logged.
func (r *Receiver) clamp(size int, s *sub) int {
	if size <= int(s.capacity) {
		return size
	}
	if !r.unexpected.clampLogged {
		r.unexpected.clampLogged = true
		r.env.Log.Warn("a message is larger than the buffer the receiver posted and was cut", "conn", r.String(), "size", size, "capacity", s.capacity)
	}
	return int(s.capacity)
}

// reportMatched sends the sender a report of the matched messages. It uses the lane that carries grants,
// because grants must follow the reports that they rely on.
func (r *Receiver) reportMatched() {
	s := &r.unexpected
	l := r.firstLane()
	if l == nil || s.unreported == 0 {
		return // without a lane: resume reports them when one has joined
	}
	t, ok := l.Carrier.(lane.EagerMatcher)
	if !ok {
		return
	}
	s.unreported = 0
	for i := range s.messages {
		e := &s.messages[i]
		if !e.matched || e.reported {
			continue
		}
		e.reported = true
		if err := t.PutMatch(e.match); err != nil {
			l.Break(err)
			return
		}
	}
	if err := t.FlushMatches(); err != nil {
		l.Break(err)
	}
}

// markUnreported marks all matched messages as unreported, because a lane has failed that may have lost the
// report.
func (s *unexpected) markUnreported() {
	s.unreported = 0
	for i := range s.messages {
		if e := &s.messages[i]; e.matched {
			e.reported = false
			s.unreported++
		}
	}
}

// failEager fails the connection because the peer sent an eager message that the protocol does not allow.
func (r *Receiver) failEager(l *lane.Lane, format string, args ...any) {
	r.Fail(fmt.Errorf("%w: %v: %v: %s", fault.ErrProtocol, r, l, fmt.Sprintf(format, args...)))
}

// EagerMatched returns an error, because a receiver sends no eager messages.
func (r incoming) EagerMatched(lane.EagerMatch) error {
	return errors.New("the receiver was sent a report of matched eager messages, which is for senders")
}
