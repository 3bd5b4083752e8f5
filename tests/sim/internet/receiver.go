package internet

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// A receiver is the half of an end that receives. It is guarded by the internet's mutex.
type receiver struct {
	room      int    // bytes that the buffer has room for
	in        []byte // not read
	whole     []byte // of which in is the rest
	rcv       uint64 // the first number that has not come
	edge      uint64 // so far the other end may send
	held      []*segment
	ended     bool // the other end has finished
	windowDue bool // the other end has to hear of more room
}

func (r *receiver) begin(room int) { r.room, r.edge = room, uint64(room) }

// input takes a segment that is for the end, or for an earlier one with its ports.
// Preconditions: n.mu is locked; an event of the bus runs.
func (e *end) input(s *segment) {
	ours := s.receiver == e && (e.peer == nil || s.sender == e.peer)
	switch {
	case s.rst:
		if ours {
			e.net().count("reset")
			e.broken(resetErrno(e))
		}
		return
	case e.state == stateCalling:
		e.answer(s)
		return
	case s.syn && !s.ack:
		e.calledAgain(s)
		return
	case !ours:
		e.net().count("segment of an earlier stream")
		return
	}
	if e.state == stateAnswering && !e.listener.ready(e) {
		return
	}
	e.heard = e.now()
	e.heardAck(s)
	if e.state == stateGone {
		return
	}
	if s.length() > 0 || s.probe || s.syn {
		e.receive(s)
	}
}

// answer takes what comes to an end that has called.
func (e *end) answer(s *segment) {
	if s.receiver != e { // of an earlier stream, whose other end does not know better
		e.host.refuse(s, e.on)
		return
	}
	if !s.syn || !s.ack {
		return
	}
	e.state, e.peer, e.window = stateOpen, s.sender, s.limit
	if e.tries == 1 {
		e.measure(e.now() - e.began)
	}
	e.opened()
	_ = e.emit(&segment{ack: true})
	e.wake()
}

// opened begins what an open stream does.
func (e *end) opened() {
	e.tries, e.soft = 0, 0
	e.pause = e.usual()
	e.resend.f = nil
	e.heard, e.answered = e.now(), e.now()
}

// calledAgain takes a call that comes to an end which there is already.
func (e *end) calledAgain(s *segment) {
	switch {
	case e.state == stateAnswering && s.sender == e.peer:
		_ = e.emit(&segment{syn: true, ack: true})
	case e.state == stateAnswering: // the caller has given up, and calls again
		l := e.listener
		e.forget()
		l.called(s, e.on)
	default: // a caller that has forgotten this stream answers with a reset
		_ = e.emit(&segment{ack: true})
	}
}

// receive takes bytes, and the end of the stream.
func (e *end) receive(s *segment) {
	if e.closing && s.seq+uint64(len(s.data)) > e.rcv {
		e.reset() // nobody is there to read it
		return
	}
	if s.length() == 0 {
		e.acknowledge()
		return
	}
	e.hold(s)
	before := e.rcv
	for len(e.held) > 0 && e.held[0].seq <= e.rcv {
		e.take(e.held[0])
		e.held = e.held[1:]
	}
	e.acknowledge()
	if e.rcv != before {
		e.readable.Broadcast()
		e.process.tell()
	}
	if e.ended {
		e.settle()
	}
}

// hold keeps a segment among those that have come before what they follow, unless it has come before.
func (e *end) hold(s *segment) {
	for _, h := range e.spans() {
		if h.from <= s.seq && s.seq+s.length() <= h.to {
			return
		}
	}
	e.held = append(e.held, s)
	slices.SortStableFunc(e.held, func(a, b *segment) int { return cmp.Compare(a.seq, b.seq) })
}

// take takes the bytes of a segment that have not come before.
func (e *end) take(s *segment) {
	known := e.rcv - s.seq
	if known < uint64(len(s.data)) {
		b := s.data[known:]
		if len(e.in)+len(b) > e.room {
			e.net().count("beyond the window")
			return
		}
		if len(e.in) == 0 {
			e.whole = e.whole[:0]
		} else if cap(e.whole)-len(e.whole) < len(b) {
			e.whole = append(e.whole[:0:0], e.in...)
		}
		from := len(e.whole) - len(e.in)
		e.whole = append(e.whole, b...)
		e.in = e.whole[from:]
		e.rcv += uint64(len(b))
	}
	if s.fin && !e.ended && e.rcv == s.seq+uint64(len(s.data)) {
		e.rcv++
		e.ended = true
	}
}

// spans are the stretches that have come before what they follow.
func (e *end) spans() (all []span) {
	for _, s := range e.held {
		if to := s.seq + s.length(); len(all) > 0 && s.seq <= all[len(all)-1].to {
			all[len(all)-1].to = max(all[len(all)-1].to, to)
		} else {
			all = append(all, span{s.seq, to})
		}
	}
	return all
}

// widen moves the edge as far as there is room.
func (e *end) widen() {
	if free := e.room - len(e.in); free >= minSegment {
		e.edge = max(e.edge, e.rcv+uint64(free))
	}
}

// acknowledge tells the other end what has come, and what there is room for.
func (e *end) acknowledge() {
	e.widen()
	if e.emit(&segment{ack: true}) != 0 {
		e.soft = unix.EHOSTUNREACH
	}
}

// read gives bytes to a program. The other end hears of the room when that has doubled.
func (e *end) read(b []byte) int {
	n := copy(b, e.in)
	e.in = e.in[n:]
	if n == 0 || e.state != stateOpen || e.ended {
		return n
	}
	known, free := e.edge-min(e.edge, e.rcv), uint64(e.room-len(e.in))
	if 2*known <= uint64(e.room) && free >= max(2*known, minSegment) {
		e.windowDue = true
		e.wantStep()
	}
	return n
}
