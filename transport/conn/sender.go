package conn

import (
	"errors"
	"fmt"
	"time"

	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Sender is the end of a connection that sends.
type Sender struct {
	Conn
	threshold int      // a message of fewer bytes is not split
	free      []uint16 // indices of free requests

	posted   uint64 // number of the last message posted
	cutCount uint   // messages that were large enough to split

	head    uint64                   // sequence of the first receive that has a buffer without a message
	masks   [lane.Window]mask        // by slot, of the receives from head on
	granted [lane.MaxSubs]lane.Grant // the grant that was read last
	shares  [lane.MaxParts]share
	split   [lane.MaxParts]int
	part    lane.Part // scratch space for the part that is being sent

	resendPending bool // parts are to be sent again
	resendCredit  failover.Credit

	eager   eager
	windows remoteWindows
	puts    *puts // nil before the first window of the receiver, and the first signal

	waiting      bool      // the wait of the next message has been counted
	waitingSince time.Time // since when the next message waits; zero until requestGrantsBySession sets it
	boardMisses  uint64    // value of board.Misses at the last message: sends without a grant that C has answered
	fetchCount   uint      // calls of fetch
	clampLogged  bool      // the log has the warning of clamp
}

// NewSender makes a sender without lanes. A message of fewer bytes than threshold is not split.
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

// Isend sends size bytes at addr, which lie in r, to the buffer that the receiver has granted for tag. It
// returns nil if there is no such grant yet or no room; the caller then tries again. A message that is larger
// than the buffer is cut to its capacity, as by NCCL's own transport, and the first is logged. A short
// message does not wait for its grant if all lanes allow that: see eager.go.
//
// On a connection that has failed Isend may still return a request; its Test returns the error.
//
// A call that returns nil has polled the lanes, because the caller may call nothing else until a send
// succeeds.
//
// The messages of a tag go to the buffers of that tag, both in order, whatever buffers of other tags have
// been granted before.
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

// isendLost is Isend on a connection that has ended, perhaps during the call. NCCL's own transport accepts a
// send that was granted before the receiver closed, and fails it in test. Whether this send was granted is
// unknown, because the last grants may be lost with the lanes. If the receiver closed with receives
// outstanding, died or is unreachable, it may have granted the send. isendLost then returns a request that
// uses no memory and no lane, and whose Test returns the error. It returns the error itself if the receiver
// closed cleanly, and so has granted nothing else, if the receiver broke the protocol, if this side failed,
// or if no request is free.
func (s *Sender) isendLost() (*Request, error) {
	err := s.checkUsable("send")
	lost := errors.Is(err, fault.ErrPeer) && !errors.Is(err, fault.ErrProtocol) && !s.closedCleanly()
	if !lost || !s.reclaim() {
		return nil, err
	}
	req := s.startRequest(0, 1, 0, nil)
	req.remaining = 0
	req.sent.Begin(1)
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
	case !s.reclaim(), s.resendPending: // lost parts of earlier messages go first
		s.poll()
		return nil, s.Ended()
	}
	size = s.clamp(size, g)
	n, which := s.cut(size, g)
	if n == 0 { // no lane is in service for which the grant has a key
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

// countSent counts a message of size bytes.
func (s *Sender) countSent(size int) {
	s.endWait()
	s.Count.Bytes.Add(uint64(size))
	s.Count.Messages.Add(1)
}

// findGrant returns the grant for the next message, or nil if there is none yet. If it returns nil it has
// polled, or polls in one of the next calls, every lane that moves data only when it is polled.
func (s *Sender) findGrant(tag int32) (*lane.Grant, error) {
	g := s.match(tag)
	switch {
	case g != nil:
	case s.traits.Polled:
		s.fetch()
		g = s.match(tag)
	case len(s.lanes) > 1: // to find a lane that has lost the grant
		s.poll()
	}
	return g, s.Ended() // polling may have ended the connection
}

// noteWait counts that the next message waits for a grant, once, and requests deferred grants over the
// session if it waits for long.
func (s *Sender) noteWait() {
	if !s.waiting {
		s.waiting = true
		s.Count.Waits.Add(1)
		s.waitingSince = time.Time{}
	}
	s.requestGrantsBySession()
}

// endWait ends the wait of the message that is sent. It counts a wait that only C has seen, because the board
// answered all calls.
func (s *Sender) endWait() {
	if m := s.board.GrantMisses(); m != s.boardMisses {
		if s.boardMisses = m; !s.waiting {
			s.Count.Waits.Add(1)
		}
	}
	s.waiting = false
}

// reclaim reports whether a request is free. If none is, it first frees requests whose results C has taken.
func (s *Sender) reclaim() bool {
	if len(s.free) > 0 {
		return true
	}
	for i := range s.requests {
		s.requests[i].busy()
	}
	return len(s.free) > 0
}

// clamp returns the bytes of a message that fit the buffer of a grant. The first message that is too large is
// logged.
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

// startRequest makes a free request outstanding, for a message of size bytes in n parts to receive seq.
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

// post sends the n parts of a message, as cut has divided it. which is the lane of an empty message. The part
// is filled field by field, because a struct built elsewhere and copied here would stall on its own stores.
func (s *Sender) post(req *Request, g *lane.Grant, addr uintptr, n, which int) {
	q, p := req.sent, &s.part
	s.posted++
	q.addr, q.number, q.sub = addr, s.posted, g.Sub
	q.Begin(n)
	p.Request, p.Eager, p.Grant, p.Region, p.Offset = req.index, nil, g, req.subs[0].region, 0
	p.Imm.Slot, p.Imm.Sub, p.Imm.Part, p.Imm.Last, p.Imm.Again = lane.SlotOf(g.Seq), g.Sub, 0, q.Last, false
	for i, l := range s.lanes {
		b := s.split[i]
		if b == 0 && i != which {
			continue
		}
		q.Lanes[p.Imm.Part], q.sizes[p.Imm.Part] = uint8(i), uint32(b)
		p.Local, p.Size, p.Imm.Writes = addr+uintptr(p.Offset), b, 0
		s.sendPart(l, p)
		p.Offset += uint64(b)
		p.Imm.Part++
	}
}

// sendPart sends a part over a lane. If the lane does not take it, the lane fails, and the part is sent again
// after that.
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

// cut divides a message over the lanes with split, and stores the bytes of each lane in s.split. It returns
// the number of parts, and the lane of an empty message. If parts should have a least size, a message that is
// too small for that is not divided, and lanes take turns. cut returns 0 if no lane in service reaches the
// buffer of the grant.
func (s *Sender) cut(size int, g *lane.Grant) (n, which int) {
	lanes, threshold := s.lanes, s.threshold
	if !s.domainsAdded { // then every lane reaches every buffer
		g = nil
	}
	if len(lanes) == 1 {
		if !serves(lanes[0], g) {
			return 0, 0
		}
		s.split[0] = size
		return 1, 0
	}
	if minPart := s.traits.MinPart; minPart > 0 {
		threshold = len(lanes) * max(threshold, minPart)
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

// serves reports whether a lane is in service and reaches the buffer of a grant. A nil grant stands for one
// that all lanes reach.
func serves(l *lane.Lane, g *lane.Grant) bool {
	return l.InService() && (g == nil || l.Carrier.Reaches(g))
}

// inTurn returns the index of the lane without a backlog that will have carried the least for its weight
// after a message of size bytes, or -1 if all have a backlog.
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

// hasRoom reports whether every lane has room for its part, as cut has divided the message. which is the lane
// of an empty message.
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
