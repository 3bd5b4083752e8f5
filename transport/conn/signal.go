package conn

import (
	"fmt"
	"math/bits"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// signal is what a sender knows of an outstanding signal beside its request.
type signal struct {
	active bool
	owner  uint64
	posted uint64 // number of its first posting

	brief   bool
	number  uint8  // of a brief signal
	carries bool   // parts of the brief signal carry those of a put
	put     uint16 // index of that put
	putPost uint64 // number of that put's posting
}

// Signal sends a short message of size bytes at addr, which lie in g, to the receive that was granted for tag. When the
// receive is done, the bytes of all puts that began before the signal are in the receiver's memory, because the message
// has a part, which may be empty, on each lane that carried them: a lane delivers in order. It returns false without an
// error if that cannot begin now; the caller then tries again. ProgressPuts reports, with the owner's number, when the
// message is delivered.
//
// The receiver must act on the signals of a tag in the order of their receives.
func (s *Sender) Signal(addr uintptr, size int, tag int32, g *lane.Region, owner uint64) (begun bool, err error) {
	if !s.TryLock() {
		return false, nil
	}
	defer s.Unlock()
	if size < 1 || !g.Covers(addr, size) {
		return false, fmt.Errorf("%w: %v: signal of %d bytes at %#x is outside the registered memory", fault.ErrUsage, s, size, addr)
	}
	if err := s.checkUsable("signal"); err != nil {
		return false, err
	}
	e, err := s.grantForSignal(tag, size)
	if e == nil {
		return false, err
	}
	mask, ok := s.signalLanes(size, e, 0)
	if !ok {
		s.poll()
		return false, s.Ended()
	}
	s.postSignal(mask, e, addr, size, g, owner)
	return true, nil
}

// grantForSignal returns the grant for a signal of size bytes, or nil if no signal can begin now.
//
// Preconditions: s is locked.
func (s *Sender) grantForSignal(tag int32, size int) (*lane.Grant, error) {
	if s.puts == nil {
		s.puts = newPuts()
	}
	e, err := s.findGrant(tag)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		s.noteWait()
		if s.traits.Eager {
			s.requestGrants()
		}
		return nil, nil
	case int(e.Capacity) < size:
		s.Fail(fmt.Errorf("%w: %v: a buffer of %d bytes was granted for a signal of %d", fault.ErrProtocol, s, e.Capacity, size))
		return nil, s.Ended()
	case !s.reclaim(), s.resendPending, !s.puts.settled(s.lanes):
		s.poll()
		return nil, s.Ended()
	}
	return e, nil
}

// settled reports whether all parts of puts that are not delivered are on lanes in service, so that a signal behind
// them on those lanes arrives after them.
func (t *puts) settled(lanes []*lane.Lane) bool {
	if t.lost > 0 {
		return false
	}
	for i, l := range lanes {
		if t.inFlight[i] > 0 && !l.InService() {
			return false
		}
	}
	return true
}

// signalLanes returns the lanes of a signal, as a mask: those that have carried puts since the last signal and those of
// puts, which have room, or if there are none, the lane that would deliver the message first. It returns false if one of
// them has no room, or no key.
func (s *Sender) signalLanes(size int, e *lane.Grant, puts uint32) (mask uint32, ok bool) {
	mask = puts
	for i, l := range s.lanes {
		if l.InService() {
			mask |= s.puts.touched & (1 << i)
		}
	}
	if mask == 0 {
		n, which := s.cut(size, e)
		if n != 1 {
			return 0, false
		}
		mask = 1 << which
	}
	for i, l := range s.lanes {
		if mask&^puts&(1<<i) == 0 {
			continue
		}
		room, err := l.Carrier.Room(size)
		if err != nil {
			l.Break(err)
		}
		if !room || !l.Carrier.Reaches(e) {
			return 0, false
		}
	}
	return mask, true
}

// postSignal posts a signal with a part on each lane of a mask. The first part has all bytes.
func (s *Sender) postSignal(mask uint32, e *lane.Grant, addr uintptr, size int, g *lane.Region, owner uint64) {
	req, _ := s.startSignal(mask, e, addr, size, g, owner)
	q, p := req.sent, &s.puts.part
	p.Request, p.Grant, p.Region, p.Window, p.Offset = req.index, e, g, 0, 0
	p.Imm = lane.Imm{Slot: lane.SlotOf(e.Seq), Sub: e.Sub, Last: q.Last}
	p.Local, p.Size, p.Inline = addr, size, true // the memory of messages is the owner's, and in host memory
	for i, l := range s.lanes {
		if mask&(1<<i) == 0 {
			continue
		}
		k := p.Imm.Part
		q.Lanes[k], q.sizes[k] = uint8(i), uint32(p.Size)
		p.Imm.Writes = 0
		s.sendPart(l, p)
		p.Offset, p.Local, p.Size = uint64(size), addr+uintptr(size), 0
		p.Imm.Part++
	}
	s.puts.touched = 0
	s.consumeGrant(e)
	s.countSent(size)
}

// startSignal makes a signal outstanding, with a part on each lane of a mask, which the caller posts.
func (s *Sender) startSignal(mask uint32, e *lane.Grant, addr uintptr, size int, g *lane.Region, owner uint64) (*Request, *signal) {
	t := s.puts
	n := bits.OnesCount32(mask)
	req := s.startRequest(size, n, e.Seq, g)
	s.posted++
	x := &t.signals[req.index]
	x.active, x.owner, x.posted, x.brief, x.carries = true, owner, s.posted, false, false
	t.order[(t.first+t.some)%lane.Window] = uint16(req.index)
	t.some++
	q := req.sent
	q.addr, q.number, q.sub = addr, s.posted, e.Sub
	q.Begin(n)
	return req, x
}
