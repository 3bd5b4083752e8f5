package conn

import (
	"errors"
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// stash is the receiver's side of eager messages: those that have come and are not in
// their buffers, whose bytes lie in the connection's wire, and those of which the sender
// may have to be told.
type stash struct {
	taken uint64                  // all up to this number have gone to their buffers
	tells int                     // of those that have, of which the sender has not been told
	asked uint64                  // number of the last before the sender asked for grants
	early [lane.EagerWindow]early // by number

	done uint64 // a sequence: all receives before it are
	lazy bool   // grants are kept back: the sender does not wait for them
	kept slots  // of receives whose grant was

	clamped bool // a message was larger than its buffer, and that was said
}

// early is an eager message that has come.
type early struct {
	number uint64 // 0: none has
	size   int
	tag    int32
	head   uint64 // its buffer is not before that receive
	gone   bool   // to its buffer, which is
	where  lane.Taken
	told   bool // the sender
}

// lazyAfter is how many eager messages have to come, since the sender last asked for grants,
// until those are kept back.
const lazyAfter = 4

// place is where the message of that number is noted.
func (s *stash) place(number uint64) *early { return &s.early[number%lane.EagerWindow] }

// next is the first message behind number, if it has come.
func (s *stash) next(number uint64) *early {
	if e := s.place(number + 1); e.number == number+1 {
		return e
	}
	return nil
}

// used reports whether an eager message has ever come.
func (s *stash) used() bool { return s.place(s.taken).number > 0 || s.some() }

// some reports whether messages wait for their receives.
func (s *stash) some() bool { return s.next(s.taken) != nil }

// arrived are the messages that have come, as a report says it.
func (s *stash) arrived() (all uint64, ahead uint16) {
	for n := s.taken + 1; n <= s.taken+lane.EagerWindow; n++ {
		if s.place(n).number == n {
			ahead |= 1 << (n - s.taken - 1)
		}
	}
	return s.taken, ahead
}

// Eager takes in an eager message, or that the sender asks for grants. Whatever it says is
// checked: a peer that breaks the protocol fails its connection, nothing else.
func (r incoming) Eager(l *lane.Lane, m lane.Eager, b []byte) {
	s := &r.stash
	n, head := lane.EagerNumber(m.Number, s.taken), lane.Sequence(m.Head, r.next)
	switch {
	case m.Ask:
		r.wanted(n)
		return
	case n <= s.taken, n > s.taken+lane.EagerWindow, s.place(n).number == n:
		r.wrong(l, "eager message %d arrived after %d were received: it is out of order, or arrived twice", n, s.taken)
		return
	case head == 0, head > r.next:
		r.wrong(l, "eager message %d is for a receive from %d on; %d is next", n, head, r.next)
		return
	}
	*s.place(n) = early{number: n, size: len(b), tag: m.Tag, head: head}
	room, _ := r.Wire.Eager(n)
	copy(room, b)
	s.lazy = s.lazy || n >= s.asked+lazyAfter
	r.takeEarly(l)
}

// wanted gives the sender, whose last eager message was n, the grants that were kept back and
// word of those that are in their buffers. Who has sent another since asks again when it needs
// them. It is called too when this side's program looks at no receive, as it waits for something
// else.
func (r *Receiver) wanted(n uint64) {
	s := &r.stash
	s.asked = max(s.asked, n)
	for i := range s.early {
		if s.early[i].number > s.asked {
			return
		}
	}
	r.tellTaken()
	r.grantKept()
}

// grantKept has the grants sent that were kept back, and keeps none back from now on.
func (r *Receiver) grantKept() {
	r.stash.lazy = false
	for i := range r.requests {
		if req := &r.requests[i]; r.stash.kept.has(i) && req.active && !req.done {
			r.again.add(i)
			r.owing = true
		}
	}
	r.stash.kept = slots{}
}

// takeEarly puts messages that have come into the buffers of their receives. l is the lane
// by which the last came, or nil.
func (r *Receiver) takeEarly(l *lane.Lane) {
	s := &r.stash
	for n := s.taken; ; n++ {
		e := s.next(n)
		if e == nil {
			break
		}
		if req, i := r.bufferOf(e); req != nil && !r.put(l, req, i, e) {
			return
		}
	}
	for e := s.next(s.taken); e != nil && e.gone; e = s.next(s.taken) {
		s.taken++
	}
	if s.tells >= lane.EagerWindow/2 || !s.lazy {
		r.tellTaken()
	}
}

// bufferOf is the buffer that a message is for, or nil while there is none.
func (r *Receiver) bufferOf(e *early) (*Request, int) {
	if e.gone {
		return nil, 0
	}
	s := &r.stash
	for s.done = max(s.done, r.oldest()); s.done < r.next; s.done++ {
		if req := &r.requests[lane.SlotOf(s.done)]; req.seq == s.done && !req.done {
			break
		}
	}
	for seq := max(e.head, s.done); seq < r.next; seq++ {
		req := &r.requests[lane.SlotOf(seq)]
		if req.seq != seq || req.done || !req.active {
			continue
		}
		slot := r.Wire.Slot(seq)
		for i := range req.n {
			if b := &req.subs[i]; b.begun|b.seen == 0 && int32(slot[i].Tag) == e.tag {
				return req, i
			}
		}
	}
	return nil, 0
}

// put copies a message into a buffer, and reports whether it could.
func (r *Receiver) put(l *lane.Lane, req *Request, i int, e *early) bool {
	if l == nil {
		l = r.lanes[0] // for the figures
	}
	size := r.clamp(e.size, &req.subs[i])
	v := lane.Imm{Slot: lane.SlotOf(req.seq), Sub: uint8(i)}.Encode()
	addr, _, ok := incoming{r}.Place(l, v, 0, uint32(size))
	if !ok {
		return false
	}
	room, _ := r.Wire.Eager(e.number)
	if !lane.CopyOut(addr, room[:size]) {
		r.Fail(fmt.Errorf("%w: %v: %v: receive: the memory at %#x is registered but not mapped", fault.ErrUsage, r, l, addr))
		return false
	}
	e.gone, e.where = true, lane.Taken{Number: e.number, Seq: uint32(req.seq), Sub: uint8(i), N: uint8(req.n)}
	r.stash.tells++
	incoming{r}.Arrived(l, v, int64(size))
	return true
}

// clamp cuts a message to its buffer, as its sender does where it knows that.
func (r *Receiver) clamp(size int, s *sub) int {
	if size <= int(s.capacity) {
		return size
	}
	if !r.stash.clamped {
		r.stash.clamped = true
		r.env.Log.Warn("a message is larger than the buffer the receiver posted and was cut", "conn", r.String(), "size", size, "capacity", s.capacity)
	}
	return int(s.capacity)
}

// tell tells the sender which messages are in their buffers, over the lane by which grants
// go: those say what is left.
func (r *Receiver) tellTaken() {
	s := &r.stash
	l := r.firstLane()
	if l == nil || s.tells == 0 {
		return // a lane that joins has it told
	}
	t, ok := l.Carrier.(lane.Taker)
	if !ok {
		return
	}
	s.tells = 0
	for i := range s.early {
		e := &s.early[i]
		if !e.gone || e.told {
			continue
		}
		e.told = true
		if err := t.PutTaken(e.where); err != nil {
			l.Break(err)
			return
		}
	}
	if err := t.FlushTaken(); err != nil {
		l.Break(err)
	}
}

// tellAgain has the sender told of all that it may not have been told of, as a lane has
// failed that may have carried it.
func (s *stash) tellAgain() {
	s.tells = 0
	for i := range s.early {
		if e := &s.early[i]; e.gone {
			e.told = false
			s.tells++
		}
	}
}

// wrong fails the connection over an eager message that the protocol does not allow.
func (r *Receiver) wrong(l *lane.Lane, format string, args ...any) {
	r.Fail(fmt.Errorf("%w: %v: %v: %s", fault.ErrProtocol, r, l, fmt.Sprintf(format, args...)))
}

func (r incoming) Taken(lane.Taken) error {
	return errors.New("the receiver was sent word of eager messages, which is for senders")
}
