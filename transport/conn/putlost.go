package conn

import (
	"math/bits"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// What becomes of puts and signals when a lane fails.
//
// A signal tells the receiver that the bytes of all earlier puts are in its memory, and the receiver's program may then
// use the memory for something else. So a part of a put must be there when its signal arrives, and must not be written
// again after that. The sender learns, once the lane is drained at both ends, from the receiver's Report which parts of
// signals have arrived; of parts of puts nobody tells. Three rules follow:
//
//   - A lost part of a put, over which a later part of a signal on the same lane is reported as arrived, was delivered,
//     because a lane delivers in order. It is not sent again. See proven.
//   - A lost part of a signal is sent again only after all parts of earlier puts that were lost, on any lane, are
//     delivered. See mustWait. Until then the signal is incomplete, so that the receiver has told nobody, and parts may
//     be written twice.
//   - While parts of puts are lost, or may be because a lane of theirs is not in service, no signal is posted: it would
//     have no part behind them. See settled.
//
// Each part of a put is therefore, at any time, either delivered; or on a lane in service, with a part of the next
// signal behind it there; or on a lane that fails together with that part of the signal; or lost, or sent again, while
// a part of the next signal waits. A part that a brief signal carries is one that was posted just before the signal's part
// on that lane. A signal that was posted later has no part behind it, if the lane carried nothing
// between the two signals: but the receiver acts on signals in their order.

// proven returns a number: all parts of puts that were posted before it on lane l were delivered, because a part of a
// signal that was posted with that number, or was sent again later, has arrived over l, as the receiver's report m
// says. 0 proves nothing. Parts of signals that are acknowledged need not be looked at, because then all parts before
// them on the lane are.
//
// Preconditions: s is locked, and l is drained at both ends.
func (s *Sender) proven(l *lane.Lane, m *handshake.Report) (number uint64) {
	for i := range s.puts.signals {
		x, req := &s.puts.signals[i], &s.requests[i]
		if !x.active || !req.active || req.done {
			continue
		}
		parts, named := partsOf(m, req)
		if !named {
			parts = allParts
		}
		if req.sent.Over(l.Index)&req.remaining&^req.sent.Lost&parts != 0 {
			number = max(number, x.posted)
		}
	}
	return number
}

// settlePuts settles the parts of puts that were sent over lane l and are not acknowledged: those that were posted
// before a number are delivered, the others are lost.
//
// Preconditions: s is locked, and l is drained at both ends.
func (s *Sender) settlePuts(l *lane.Lane, proven uint64) {
	t := s.puts
	for i := range t.all {
		p := &t.all[i]
		for left := p.remaining &^ p.lost; left != 0; left &= left - 1 {
			k := bits.TrailingZeros32(left)
			if p.lanes[k] != l.Index {
				continue
			}
			t.inFlight[l.Index]--
			p.carried &^= 1 << k
			switch {
			case p.numbers[k] < proven:
				s.endPutPart(p, k)
			case p.window.Gone():
				p.err = s.goneError(p.window)
				s.endPutPart(p, k)
			default:
				p.lost |= 1 << k
				p.again |= 1 << k
				t.lost++
				s.resendPending = true
			}
		}
	}
	t.touched &^= 1 << l.Index
}

// giveUpLost gives up the lost parts of puts into a window that has ended: nobody may write there any more.
//
// Preconditions: s is locked.
func (s *Sender) giveUpLost(w *RemoteWindow) {
	for i := range s.puts.all {
		p := &s.puts.all[i]
		if p.remaining == 0 || p.window != w {
			continue
		}
		for lost := p.lost; lost != 0; lost &= lost - 1 {
			k := bits.TrailingZeros32(lost)
			p.lost &^= 1 << k
			p.err = s.goneError(w)
			s.puts.lost--
			s.endPutPart(p, k)
		}
	}
}

// resendPuts sends lost parts of puts again, cut as before, as far as the lanes have room. It returns false if some are
// left.
//
// Preconditions: s is locked.
func (s *Sender) resendPuts() (done bool) {
	t := s.puts
	for i := 0; i < putWindow && t.lost > 0; i++ {
		p := &t.all[(t.next+i)%putWindow] // the oldest first
		for lost := p.lost; lost != 0; lost &= lost - 1 {
			k := bits.TrailingZeros32(lost)
			l := soonestLane(s.lanes, int(p.sizes[k]), &p.window.grant)
			if l == nil {
				return false
			}
			if ok, err := l.Carrier.Room(int(p.sizes[k])); err != nil || !ok {
				if err != nil {
					l.Break(err)
				}
				return false
			}
			p.lost &^= 1 << k
			t.lost--
			s.posted++
			s.sendPutPart(l, p, k)
			l.Resent.Add(uint64(p.sizes[k]))
			s.Count.Resent.Add(uint64(p.sizes[k]))
		}
	}
	return true
}

// mustWait reports whether the lost parts of a request must not be sent again yet, because it is a signal, and parts of
// earlier puts that were lost are not delivered yet.
//
// Preconditions: s is locked.
func (s *Sender) mustWait(req *Request) bool {
	if s.puts == nil || req.isEager() || !s.puts.signals[req.index].active {
		return false
	}
	posted := s.puts.signals[req.index].posted
	for i := range s.puts.all {
		if p := &s.puts.all[i]; p.remaining&p.again != 0 && p.posted < posted {
			return true
		}
	}
	return false
}
