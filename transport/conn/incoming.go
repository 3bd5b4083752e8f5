package conn

import (
	"errors"
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// incoming handles what the lanes of a receiver report.
type incoming struct{ *Receiver }

var _ lane.Sink = incoming{}

// Arrived handles the arrival of a part of size bytes, whose immediate is v. A peer that breaks the protocol
// fails its own connection only.
func (r incoming) Arrived(l *lane.Lane, v uint32, size int64) {
	if id, put := lane.PutWindow(v); put {
		r.putArrived(l, id, size)
		return
	}
	l.Parts.Add(1)
	var m lane.Imm
	req, s := r.outstanding(l, v, &m, m.Decode(v))
	switch {
	case s == nil:
		return
	case s.seen&(1<<m.Part) != 0:
		r.failImmediate(l, v, "that part has arrived before")
		return
	case s.brief: // the bytes are in a window
		l.Bytes.Add(uint64(size))
		size = 0
	case int64(s.size)+size > int64(s.capacity):
		r.failImmediate(l, v, fmt.Sprintf("%d bytes for a buffer of %d", int64(s.size)+size, s.capacity))
		return
	}
	if m.Again && !r.useResendCredit() {
		r.failImmediate(l, v, "more parts were sent again than allowed")
		return
	}
	if req.trace != nil {
		if s.begun&(1<<m.Part) == 0 {
			req.trace.add(l, m.Sub, m.Part, int(size))
		}
		req.trace.end(m.Sub, m.Part)
	}
	s.seen |= 1 << m.Part
	s.size += uint32(size)
	l.Bytes.Add(uint64(size))
	if s.region != nil && s.region.Kind == lane.GPUMemory {
		r.flushes.noteGPUArrival(l)
	}
	if !s.isComplete() {
		return
	}
	if r.windows.gpu > 0 { // puts, of which a signal tells, have arrived over any of the devices
		r.flushes.noteGPUPuts(len(r.domains))
	}
	r.Count.Bytes.Add(uint64(s.size))
	r.Count.Messages.Add(1)
	r.granted--
	if req.remaining--; req.remaining == 0 {
		req.complete()
	}
}

// Place returns the address and region for a part that is about to arrive: size bytes at an offset in its
// message. It checks everything before a byte is read, so that nothing is written outside a granted buffer: a
// peer that breaks the protocol fails its own connection only.
func (r incoming) Place(l *lane.Lane, v uint32, offset uint64, size uint32) (addr uintptr, g *lane.Region, ok bool) {
	if id, put := lane.PutWindow(v); put {
		return r.placePut(l, id, offset, size)
	}
	var m lane.Imm
	req, s := r.outstanding(l, v, &m, m.DecodePlaced(v, offset))
	switch {
	case s == nil:
		return 0, nil, false
	case m.Writes != 0:
		r.failImmediate(l, v, "plain writes of a part that is placed here")
		return 0, nil, false
	case m.Brief && size > 0:
		r.failImmediate(l, v, fmt.Sprintf("%d bytes of a brief signal that are placed here", size))
		return 0, nil, false
	case (s.begun|s.seen)&(1<<m.Part) != 0:
		r.failImmediate(l, v, "that part has begun before")
		return 0, nil, false
	case s.deregistered && size > 0:
		r.Fail(r.explainWithdrawn(fmt.Errorf("%v: %d bytes", l, size)))
		return 0, nil, false
	case m.Brief: // it is empty
	case offset > uint64(s.capacity) || uint64(size) > uint64(s.capacity)-offset:
		r.failImmediate(l, v, fmt.Sprintf("%d bytes at %d for a buffer of %d", size, offset, s.capacity))
		return 0, nil, false
	}
	if req.trace != nil {
		req.trace.add(l, m.Sub, m.Part, int(size))
	}
	s.begun |= 1 << m.Part
	return s.addr + uintptr(offset), s.region, true
}

// outstanding returns the receive and sub-receive that an immediate m, decoded from v, names; ok says that it is
// well-formed. If there is none it fails the connection and returns nil.
func (r *Receiver) outstanding(l *lane.Lane, v uint32, m *lane.Imm, ok bool) (*Request, *sub) {
	req := &r.requests[m.Slot]
	switch {
	case !ok:
		r.failImmediate(l, v, "malformed")
		return nil, nil
	case !req.active || req.done:
		r.failImmediate(l, v, "no receive outstanding in that slot")
		return nil, nil
	case int(m.Sub) >= req.n:
		r.failImmediate(l, v, fmt.Sprintf("the receive has %d buffers", req.n))
		return nil, nil
	case m.Brief && !r.standing:
		r.failImmediate(l, v, "a brief signal for a receive that takes messages")
		return nil, nil
	}
	s := &req.subs[m.Sub]
	if s.brief && s.begun&^s.seen&(1<<m.Part) != 0 { // Place has seen by the offset that the part belongs to a brief signal
		m.BecomeBrief()
	}
	if s.seen|s.begun == 0 {
		s.last, s.brief, s.number = m.Last, m.Brief, m.Number
	}
	if s.brief != m.Brief || s.number != m.Number {
		r.failImmediate(l, v, "parts of different signals")
		return nil, nil
	}
	if s.last != m.Last {
		r.failImmediate(l, v, fmt.Sprintf("the number of parts changed from %d", s.last+1))
		return nil, nil
	}
	return req, s
}

// failImmediate fails the connection because the peer sent an immediate that the protocol does not allow.
func (r *Receiver) failImmediate(l *lane.Lane, v uint32, why string) {
	r.Fail(fmt.Errorf("%w: %v: %v: immediate %#08x: %s", fault.ErrProtocol, r, l, v, why))
}

// Dropped notes that a part which has begun to arrive will not end on this lane. It will be sent again over
// another.
func (r incoming) Dropped(l *lane.Lane, v uint32) {
	if id, put := lane.PutWindow(v); put {
		r.putEnded(l, id)
		return
	}
	var m lane.Imm
	m.Decode(v)
	if req := &r.requests[m.Slot]; req.active && int(m.Sub) < req.n {
		req.subs[m.Sub].begun &^= 1 << m.Part
	}
}

// Delivered fails the connection, because a receiver sends no parts.
func (r incoming) Delivered(l *lane.Lane, _, _ int) {
	r.Fail(fmt.Errorf("%w: %v: %v: completion of a part at the receiver", fault.ErrInternal, r, l))
}

// Granted returns an error, because a receiver gets no grants.
func (r incoming) Granted(uint64, []lane.Grant) error {
	return errors.New("the receiver was sent a grant")
}

// subsOf calls f with every incomplete sub-receive whose buffer lies in g.
//
// Preconditions: r is locked.
func (r *Receiver) subsOf(g *lane.Region, f func(*sub)) {
	for i := range r.requests {
		if q := &r.requests[i]; q.active && !q.done {
			for k := range q.subs[:q.n] {
				if s := &q.subs[k]; s.region == g {
					f(s)
				}
			}
		}
	}
}

// noneInProgress reports whether no part for a buffer in g is arriving now.
//
// Preconditions: r is locked.
func (r *Receiver) noneInProgress(g *lane.Region) bool {
	some := false
	r.subsOf(g, func(s *sub) { some = some || s.begun&^s.seen != 0 })
	return !some && !r.putsInProgress(g)
}

// detachBuffers removes the buffers in g from their sub-receives, and ends the windows in g. The connection fails if data comes for one
// of them.
//
// Preconditions: r is locked.
func (r *Receiver) detachBuffers(g *lane.Region) {
	r.subsOf(g, func(s *sub) {
		s.region, s.deregistered = nil, true
		g.InUse--
	})
	r.withdrawWindows(g)
}
