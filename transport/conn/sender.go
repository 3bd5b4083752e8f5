package conn

import (
	"errors"
	"fmt"
	"time"

	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Sender is the end of a connection that sends.
type Sender struct {
	Conn
	threshold int      // bytes; a message of fewer goes over one lane
	free      []uint16 // indices of requests not in use

	posted   uint64 // number of the message that was posted last
	cutCount uint   // messages so far that were cut

	head    uint64                   // sequence of the first receive that has a buffer without a message
	masks   [lane.Window]mask        // of the receives from there on, by slot
	granted [lane.MaxSubs]lane.Grant // the grant that was read last
	shares  [lane.MaxParts]share
	split   [lane.MaxParts]int
	part    lane.Part // that is being sent

	resendPending bool // parts are to be sent again
	resendCredit  int  // that may be

	eager eager

	waiting      bool      // the next message has been counted in waits
	waitingSince time.Time // and waits since; zero until that matters
	boardMisses  uint64    // sends without a grant, answered by the board, until the last message
	fetchCount   uint      // times that lanes were asked for grants
	clampLogged  bool      // a message was larger than its grant, and that was said
}

// NewSender makes a sender that has no lanes yet. A message of fewer bytes than threshold goes over one lane.
func NewSender(env *Env, session *control.Session, id uint32, threshold int) *Sender {
	s := &Sender{threshold: threshold, head: 1, free: make([]uint16, 0, lane.Window)}
	s.init(env, session, id, true, outgoing{s})
	s.sender = s
	s.requests = s.newRequests(lane.Window+lane.EagerWindow, 1)
	parts := make([]sent, len(s.requests))
	for i := range s.requests {
		s.requests[i].sent = &parts[i]
	}
	for i := range lane.Window {
		s.free = append(s.free, uint16(lane.Window-1-i))
	}
	return s
}

// Isend sends size bytes at addr, which lie in r, into the buffer that the
// receiver has granted for tag. It returns nil when there is no such grant yet
// or no room to post; the caller tries again. A message larger than the grant is
// cut to its capacity, as NCCL's own transport does, and that is logged once. A short
// one does not wait for its grant where lanes can do without: see eager.go.
//
// On a connection that has failed a send may still be accepted; its Test returns the error.
//
// A call that returns nil has moved on what was sent before as far as that goes: the caller may
// call nothing else until a send succeeds.
//
// The messages of a tag go to the buffers of that tag, both in order, whatever else has been
// granted before and has no message yet.
func (s *Sender) Isend(addr uintptr, size int, tag int32, r *lane.Region) (*Request, error) {
	if !s.TryLock() {
		return nil, nil
	}
	defer s.Unlock()
	if size < 0 || size > 0 && !r.Covers(addr, size) {
		return nil, fmt.Errorf("%w: %v: send of %d bytes at %#x is outside the registered memory", fault.ErrUsage, s, size, addr)
	}
	if s.checkUsable("send") == nil {
		if q, err := s.isend(addr, size, tag, r); q != nil || s.Ended() == nil {
			return q, err
		}
	}
	return s.isendLost()
}

// isendLost is Isend on a connection that has ended, perhaps in the call. NCCL's own transport
// accepts a send that was granted before the receiver closed, and fails it in test. Whether this
// one was granted is not known here: the last grants may be lost with the lanes. So a receiver
// that closed with receives outstanding, or died, or cannot be reached, may have granted it:
// isendLost returns a request that uses no memory and no lane, and whose Test returns the error.
// It returns the error itself when the receiver closed cleanly, and so has granted nothing else,
// when the receiver broke the protocol, or this side failed, and when no request is free.
func (s *Sender) isendLost() (*Request, error) {
	err := s.checkUsable("send")
	lost := errors.Is(err, fault.ErrPeer) && !errors.Is(err, fault.ErrProtocol) && !s.closedCleanly()
	if !lost || !s.reclaim() {
		return nil, err
	}
	req := s.startRequest(0, 1, 0, nil)
	req.remaining, req.sent.last, req.sent.lost = 0, 0, 0
	return s.show(req), nil
}

// isend is Isend on a connection that has not ended.
func (s *Sender) isend(addr uintptr, size int, tag int32, r *lane.Region) (*Request, error) {
	if s.canSendEager(size) && s.canSkipGrants(tag) {
		if q, err := s.isendEager(addr, size, tag, r); q != nil || err != nil {
			return q, err
		}
	}
	g, err := s.findGrant(tag)
	switch {
	case err != nil:
		return nil, err
	case g == nil && s.canSendEager(size):
		return s.isendEager(addr, size, tag, r)
	case g == nil:
		s.noteWait()
		if s.traits.Eager {
			s.requestGrants()
		}
		return nil, nil
	case !s.reclaim(), s.resendPending: // of what was sent before some comes first
		s.poll()
		return nil, s.Ended()
	}
	size = s.clamp(size, g)
	n, which := s.cut(size, g)
	if n == 0 { // no lane is in service, or none that the grant as it was read has a key for
		return nil, nil
	}
	if !s.hasRoom(which) {
		s.poll()
		if err := s.Ended(); err != nil || !s.hasRoom(which) {
			return nil, err
		}
	}
	req := s.startRequest(size, n, g.Seq, r)
	s.post(req, g, addr, n, which)
	s.consumeGrant(g)
	s.countSent(size)
	return s.show(req), nil
}

// sentOne counts a message.
func (s *Sender) countSent(size int) {
	s.endWait()
	s.Count.Bytes.Add(uint64(size))
	s.Count.Messages.Add(1)
}

// find returns the grant for the next message, or nil when there is none yet; then every lane
// that moves nothing between calls has had its turn, or will have it in one of the next calls.
func (s *Sender) findGrant(tag int32) (*lane.Grant, error) {
	g := s.match(tag)
	switch {
	case g != nil:
	case s.traits.Polled:
		s.fetch()
		g = s.match(tag)
	case len(s.lanes) > 1: // it may be lost
		s.poll()
	}
	return g, s.Ended() // which it may have been in looking for it
}

// noteWait notes that the next message has to wait.
func (s *Sender) noteWait() {
	if !s.waiting {
		s.waiting = true
		s.Count.Waits.Add(1)
		s.waitingSince = time.Time{}
	}
	s.requestGrantsBySession()
}

// endWait ends the count of a message's waits: the board may have answered all of them.
func (s *Sender) endWait() {
	if m := s.board.Misses(); m != s.boardMisses {
		if s.boardMisses = m; !s.waiting {
			s.Count.Waits.Add(1)
		}
	}
	s.waiting = false
}

// reclaim reports whether a request is free, after a look for answers that C has taken.
func (s *Sender) reclaim() bool {
	if len(s.free) > 0 {
		return true
	}
	for i := range s.requests {
		s.requests[i].busy()
	}
	return len(s.free) > 0
}

// clamp cuts a message to its grant.
func (s *Sender) clamp(size int, g *lane.Grant) int {
	if size <= int(g.Capacity) {
		return size
	}
	if !s.clampLogged {
		s.clampLogged = true
		s.env.Log.Warn("a message is larger than the buffer the receiver posted and was cut", "conn", s.String(), "size", size, "capacity", g.Capacity)
	}
	return int(g.Capacity)
}

// take makes a request outstanding, of a message of n parts for the receive seq.
func (s *Sender) startRequest(size, n int, seq uint64, r *lane.Region) *Request {
	req := &s.requests[s.free[len(s.free)-1]]
	s.free = s.free[:len(s.free)-1]
	s.begin(req, 1)
	req.remaining = 1<<n - 1
	req.seq = seq
	req.subs[0].size = uint32(size)
	if size > 0 {
		req.subs[0].region = r
		r.InUse++
	}
	return req
}

// post sends the parts of a message as it was cut. The part is written field by field: what is
// made elsewhere and copied here would wait for its own stores.
func (s *Sender) post(req *Request, g *lane.Grant, addr uintptr, n, which int) {
	q, p := req.sent, &s.part
	s.posted++
	q.addr, q.number, q.sub, q.last, q.lost, q.resent = addr, s.posted, g.Sub, uint8(n-1), 0, 0
	p.Request, p.Eager, p.Grant, p.Region, p.Offset = req.index, nil, g, req.subs[0].region, 0
	p.Imm.Slot, p.Imm.Sub, p.Imm.Part, p.Imm.Last, p.Imm.Again = lane.SlotOf(g.Seq), g.Sub, 0, q.last, false
	for i, l := range s.lanes {
		b := s.split[i]
		if b == 0 && i != which {
			continue
		}
		q.lanes[p.Imm.Part], q.sizes[p.Imm.Part] = uint8(i), uint32(b)
		p.Local, p.Size, p.Imm.Writes = addr+uintptr(p.Offset), b, 0
		s.sendPart(l, p)
		p.Offset += uint64(b)
		p.Imm.Part++
	}
}

// sendPart gives a lane a part. One that it does not take is lost with the lane.
func (s *Sender) sendPart(l *lane.Lane, p *lane.Part) {
	if l.Backlog == 0 && s.measured(l) {
		s.startMeasure(l, p.Size)
	}
	if err := l.Carrier.Send(p); err != nil {
		l.Break(err)
	}
	if t := s.requests[p.Request].trace; t != nil {
		t.add(l, 0, p.Imm.Part, p.Size)
	}
	l.Backlog += int64(p.Size)
	l.Bytes.Add(uint64(p.Size))
	l.Parts.Add(1)
}

// cut divides a message over the lanes as split does. Where a part should have a least
// size, a message stays whole as long as they would have less, and lanes take turns.
// It returns 0 when no lane is in service that reaches the buffer of the grant.
func (s *Sender) cut(size int, g *lane.Grant) (n, which int) {
	lanes, threshold := s.lanes, s.threshold
	if !s.domainsAdded { // then every lane does
		g = nil
	}
	if len(lanes) == 1 { // nothing to choose
		if !serves(lanes[0], g) {
			return 0, 0
		}
		s.split[0] = size
		return 1, 0
	}
	if least := s.traits.MinPart; least > 0 {
		threshold = len(lanes) * max(threshold, least)
		if which = inTurn(lanes, size, g); size < threshold && which >= 0 {
			clear(s.split[:])
			s.split[which] = size
			return 1, which
		}
	}
	some := false
	for i, l := range lanes {
		s.shares[i] = share{backlog: l.Backlog}
		if serves(l, g) {
			s.shares[i].weight, some = l.Rate(), true
		}
	}
	if !some {
		return 0, 0
	}
	if size >= threshold {
		s.remeasure(size)
	}
	return split(size, s.shares[:len(lanes)], threshold, s.split[:])
}

// serves reports whether a lane can carry to the buffer of a grant; nil is one that all in
// service reach.
func serves(l *lane.Lane, g *lane.Grant) bool {
	return l.InService() && (g == nil || l.Carrier.Reaches(g))
}

// inTurn returns the lane without a backlog that will then have carried the least
// for its weight, or -1.
func inTurn(lanes []*lane.Lane, size int, g *lane.Grant) int {
	which, least := -1, 0.0
	for i, l := range lanes {
		if !serves(l, g) || l.Backlog > 0 {
			continue
		}
		if used := l.Carried + float64(l.Bytes.Value()+uint64(size))/l.Rate(); which < 0 || used < least {
			which, least = i, used
		}
	}
	return which
}

// room reports whether every lane can take its part.
func (s *Sender) hasRoom(which int) bool {
	for i, l := range s.lanes {
		if b := s.split[i]; b > 0 || i == which {
			ok, err := l.Carrier.Room(b)
			if err != nil {
				l.Break(err)
			}
			if !ok {
				return false
			}
		}
	}
	return true
}
