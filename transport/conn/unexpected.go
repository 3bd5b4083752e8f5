package conn

import (
	"errors"
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// unexpected is the receiver's side of eager messages: those that have come and are not in
// their buffers, whose bytes lie in the connection's wire, and those of which the sender
// may have to be told.
type unexpected struct {
	matchedThrough    uint64                         // all up to this number have gone to their buffers
	unreported        int                            // of those that have, of which the sender has not been told
	grantsRequestedAt uint64                         // number of the last before the sender asked for grants
	messages          [lane.EagerWindow]eagerMessage // by number

	doneBefore  uint64 // a sequence: all receives before it are
	deferGrants bool   // grants are kept back: the sender does not wait for them
	deferred    slots  // of receives whose grant was

	clampLogged bool // a message was larger than its buffer, and that was said
}

// eagerMessage is an eager message that has come.
type eagerMessage struct {
	number       uint64 // 0: none has
	size         int
	tag          int32
	firstReceive uint64 // its buffer is not before that receive
	matched      bool   // to its buffer, which is
	match        lane.EagerMatch
	reported     bool // the sender
}

// lazyAfter is how many eager messages have to come, since the sender last asked for grants,
// until those are kept back.
const deferAfter = 4

// place is where the message of that number is noted.
func (s *unexpected) entry(number uint64) *eagerMessage { return &s.messages[number%lane.EagerWindow] }

// next is the first message behind number, if it has come.
func (s *unexpected) next(number uint64) *eagerMessage {
	if e := s.entry(number + 1); e.number == number+1 {
		return e
	}
	return nil
}

// used reports whether an eager message has ever come.
func (s *unexpected) everUsed() bool { return s.entry(s.matchedThrough).number > 0 || s.hasAny() }

// some reports whether messages wait for their receives.
func (s *unexpected) hasAny() bool { return s.next(s.matchedThrough) != nil }

// arrived are the messages that have come, as a report says it.
func (s *unexpected) arrived() (all uint64, ahead uint16) {
	for n := s.matchedThrough + 1; n <= s.matchedThrough+lane.EagerWindow; n++ {
		if s.entry(n).number == n {
			ahead |= 1 << (n - s.matchedThrough - 1)
		}
	}
	return s.matchedThrough, ahead
}

// Eager takes in an eager message, or that the sender asks for grants. Whatever it says is
// checked: a peer that breaks the protocol fails its connection, nothing else.
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

// grantsRequested gives the sender, whose last eager message was n, the grants that were kept back and
// word of those that are in their buffers. Who has sent another since asks again when it needs
// them. It is called too when this side's program looks at no receive, as it waits for something
// else.
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

// sendDeferredGrants has the grants sent that were kept back, and keeps none back from now on.
func (r *Receiver) sendDeferredGrants() {
	r.unexpected.deferGrants = false
	for i := range r.requests {
		if req := &r.requests[i]; r.unexpected.deferred.has(i) && req.active && !req.done {
			r.regrants.add(i)
			r.resumePending = true
		}
	}
	r.unexpected.deferred = slots{}
}

// matchEager puts messages that have come into the buffers of their receives. l is the lane
// by which the last came, or nil.
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

// bufferOf is the buffer that a message is for, or nil while there is none.
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

// deliverEager copies a message into a buffer, and reports whether it could.
func (r *Receiver) deliverEager(l *lane.Lane, req *Request, i int, e *eagerMessage) bool {
	if l == nil {
		l = r.lanes[0] // for the figures
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

// clamp cuts a message to its buffer, as its sender does where it knows that.
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

// reportMatched tells the sender which messages are in their buffers, over the lane by which grants
// go: those say what is left.
func (r *Receiver) reportMatched() {
	s := &r.unexpected
	l := r.firstLane()
	if l == nil || s.unreported == 0 {
		return // a lane that joins has it told
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

// reportAgain has the sender told of all that it may not have been told of, as a lane has
// failed that may have carried it.
func (s *unexpected) markUnreported() {
	s.unreported = 0
	for i := range s.messages {
		if e := &s.messages[i]; e.matched {
			e.reported = false
			s.unreported++
		}
	}
}

// failEager fails the connection over an eager message that the protocol does not allow.
func (r *Receiver) failEager(l *lane.Lane, format string, args ...any) {
	r.Fail(fmt.Errorf("%w: %v: %v: %s", fault.ErrProtocol, r, l, fmt.Sprintf(format, args...)))
}

func (r incoming) EagerMatched(lane.EagerMatch) error {
	return errors.New("the receiver was sent word of eager messages, which is for senders")
}
