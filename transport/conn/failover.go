package conn

import (
	"fmt"
	"math/bits"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// complete, in a report, stands for all parts of a message.
const allParts = 1<<32 - 1

// slots is a set of slots of the ring.
type slots [lane.Window / 64]uint64

func (s *slots) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *slots) remove(i int)   { s[i/64] &^= 1 << (i % 64) }
func (s *slots) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s *slots) none() bool     { return *s == slots{} }

// counts is a number for each slot of the ring.
type counts [lane.Window]uint16

func (c *counts) has(i int) bool { return c[i] > 0 }

// report says what has arrived of each outstanding receive, now that a lane is down at
// both ends. Grants that went over it, and that no part has come for, may not have
// come: they are to be sent again.
func (r *Receiver) report(l *lane.Lane) *handshake.Report {
	r.prepare()
	m := &handshake.Report{Again: uint16(lane.Resends - r.resendCredit)}
	m.Eager, m.Ahead = r.unexpected.arrived()
	r.resendCredit = lane.Resends
	r.unexpected.markUnreported()
	r.sendDeferredGrants()
	for seq := r.oldest(); seq < r.next; seq++ {
		req := &r.requests[lane.SlotOf(seq)]
		over, again := req.lane == l.Index, r.regrantsInFlight.has(req.index)
		if over {
			r.regrantsInFlight[req.index] = 0 // nothing of the lane comes any more
		}
		if !req.active || req.done {
			continue
		}
		got := handshake.Received{Seq: seq, Parts: make([]uint32, req.n)}
		begun := false
		for i := range req.n {
			s := &req.subs[i]
			begun = begun || s.seen|s.begun != 0
			if got.Parts[i] = s.seen; s.isComplete() {
				got.Parts[i] = allParts
			}
		}
		m.Receives = append(m.Receives, got)
		// A part may have come before its grant, and before one that was sent again because it takes a key along.
		if over && (!begun || again || r.unexpected.everUsed()) {
			r.regrants.add(req.index)
		}
	}
	return m
}

// oldest is a sequence before which no receive is outstanding, nor its slot waited for.
func (r *Receiver) oldest() uint64 {
	if r.next > lane.Window {
		return r.next - lane.Window
	}
	return 1
}

// whole reports whether all parts of a message have arrived.
func (s *sub) isComplete() bool {
	return s.seen != 0 && bits.OnesCount32(s.seen) > int(s.last)
}

// countAgain counts a part that was sent again, and reports whether it may have been.
// The sender may send more when there is room for half of what there can be.
func (r *Receiver) useResendCredit() bool {
	if r.resendCredit == 0 {
		return false
	}
	if r.resendCredit--; r.resendCredit == lane.Resends/2 {
		r.prepare()
		more := lane.Resends - r.resendCredit
		r.resendCredit = lane.Resends
		r.sendOrFail(&handshake.Report{Conn: r.ID, Again: uint16(more), Epoch: noLaneEpoch})
	}
	return true
}

// noEpoch is no lane's: such a report is about none.
const noLaneEpoch = 1<<32 - 1

// resume grants again what there is room for, in order.
func (r *Receiver) resume() (done bool) {
	r.reportMatched()
	done = true
	for seq := r.oldest(); seq < r.next && !r.regrants.none(); seq++ {
		req := &r.requests[lane.SlotOf(seq)]
		if !r.regrants.has(req.index) {
			continue
		}
		if req.active && !req.done {
			l := r.regrantLane(req)
			if l == nil {
				done = false
				continue
			}
			r.rekey(req)
			for i := range req.n {
				r.Ring.Slot(seq)[i].After = r.laneBefore(seq)
			}
			r.regrantsInFlight[req.index]++
			r.sendGrant(l, req, r.Ring.Slot(seq)[:req.n], true)
		}
		r.regrants.remove(req.index)
	}
	return done
}

// againLane is the lane that may carry the grant of a receive again, or nil while there is none: the one that carried it before,
// unless nothing of that lands any more. Over another the grant would overtake the first, and a device would then write the
// first into the slot of a later receive. The sender's processor does not.
func (r *Receiver) regrantLane(req *Request) *lane.Lane {
	switch l := r.lanes[req.lane]; {
	case l.Port.Traits().Polled, r.isSettled(l):
		return r.grantLane()
	case l.InService() && l.Carrier.Grantable():
		return l
	}
	return nil
}

// widened has every receive granted again whose grant lacks a key that its memory has by
// now, or went over a lane that takes none along: what is sent, or sent again, from here
// on may go over the lanes that need it.
func (r *Receiver) regrantForNewKeys() {
	for seq := r.oldest(); seq < r.next; seq++ {
		req := &r.requests[lane.SlotOf(seq)]
		if req.active && !req.done && (r.rekey(req) || req.noKeys) {
			r.regrants.add(req.index)
		}
	}
}

// rekey gives a receive's entries the keys of its memory, and reports whether they lacked
// one.
func (r *Receiver) rekey(req *Request) (lacked bool) {
	slot := r.Ring.Slot(req.seq)
	for i := range req.n {
		if g := req.subs[i].region; g != nil && slot[i].RKeys != g.RKeys {
			slot[i].RKeys, lacked = g.RKeys, true
		}
	}
	return lacked
}

func (r incoming) Regranted(_ *lane.Lane, slot uint8) {
	if r.regrantsInFlight.has(int(slot)) {
		r.regrantsInFlight[slot]--
	}
}

// settleLost settles what went over a lane that is down at both ends: of the parts that
// are not known to have been delivered those that have arrived are, and the others are to
// be sent again. A receive that is not named is complete.
func (s *Sender) settleLost(l *lane.Lane, m *handshake.Report) error {
	s.resendCredit += int(m.Again)
	if l == nil {
		return nil
	}
	s.eager.grantsRequestedAt = 0 // the lane may have carried that
	for i := range s.requests {
		req := &s.requests[i]
		if !req.active || req.done {
			continue
		}
		if req.isEager() {
			s.settleEager(l, m, req)
			continue
		}
		parts, named := partsOf(m, req)
		if !named {
			parts = allParts
		}
		for k := range int(req.sent.last) + 1 {
			bit := uint32(1) << k
			switch over := req.sent.lanes[k] == l.Index; {
			case over && req.remaining&bit != 0 && parts&bit != 0:
				s.partDelivered(req, k)
			case over && req.remaining&bit != 0:
				req.sent.lost |= bit
				s.resendPending = true
			case over && parts&bit == 0:
				return s.lostAtPeer(l, req.seq)
			}
		}
	}
	return nil
}

// partsOf is what a report says of the receive that a send is for.
func partsOf(m *handshake.Report, req *Request) (parts uint32, named bool) {
	i, ok := slices.BinarySearchFunc(m.Receives, req.seq, func(v handshake.Received, seq uint64) int {
		switch {
		case v.Seq < seq:
			return -1
		case v.Seq > seq:
			return 1
		}
		return 0
	})
	if !ok || int(req.sent.sub) >= len(m.Receives[i].Parts) {
		return 0, false
	}
	return m.Receives[i].Parts[req.sent.sub], true
}

// lostAtPeer is the error of a part that is delivered as far as this side knows, and that the
// receiver lacks: its memory may have been used again.
func (s *Sender) lostAtPeer(l *lane.Lane, seq uint64) error {
	return fmt.Errorf("%w: %v: %v: data of receive %d was acknowledged to %s and has not reached the program on %s: it is lost with the lane",
		fault.ErrLane, s, l, seq, s.Session.LocalName(), s.Session.Name())
}

// resume sends lost parts again, as they were cut, as far as there is room. The receiver
// counts what arrives: a part that is lost once more is not charged again. Parts that have no
// leave yet do not hold up those that have: the receiver gives more once these have arrived.
func (s *Sender) resume() (done bool) {
	if !s.resendPending {
		return s.flushUnsent()
	}
	waits := false // for leave
	for i := range s.requests {
		req := &s.requests[i]
		if !req.active || req.done {
			continue
		}
		for lost := req.sent.lost; lost != 0; lost &= req.sent.lost {
			k := bits.TrailingZeros32(lost)
			lost &^= 1 << k
			charged := req.sent.resent&(1<<k) != 0
			switch {
			case req.isEager() && s.resendEager(req):
				continue
			case !req.isEager() && !charged && s.resendCredit == 0:
				waits = true
				continue
			case req.isEager(), !s.resendPart(req, k):
				return false
			}
			req.sent.lost &^= 1 << k
			if req.sent.resent |= 1 << k; !charged {
				s.resendCredit--
			}
		}
	}
	if s.resendPending = waits; waits {
		return false
	}
	return s.flushUnsent()
}

// isOut gives the kernel the rest of each message of which it has a part, where nobody waits for that message, and reports whether
// the kernel has all of them. An eager message that was sent again has no request whose test would do so.
func (s *Sender) flushUnsent() bool {
	if !s.hasUnsent() {
		return true
	}
	for _, l := range s.lanes {
		if l.Carrier.Owes() {
			l.Carrier.Fetch()
		}
	}
	return !s.hasUnsent()
}

// sendAgain sends a part over the lane that would deliver it first, and reports false
// when that has no room.
func (s *Sender) resendPart(req *Request, k int) bool {
	q := req.sent
	g := s.Ring.Slot(req.seq)[q.sub]
	l := soonestLane(s.lanes, int(q.sizes[k]), &g)
	if l == nil {
		return false
	}
	if ok, err := l.Carrier.Room(int(q.sizes[k])); err != nil || !ok {
		if err != nil {
			l.Break(err)
		}
		return false
	}
	// The ring's entry stays until the receive is complete. What it says may have
	// changed since it was checked.
	if g.Seq != req.seq || g.Capacity < req.subs[0].size {
		s.Fail(fmt.Errorf("%w: %v: grant %d changed while its message was sent", fault.ErrProtocol, s, req.seq))
		return false
	}
	p := &lane.Part{
		Request: req.index, Grant: &g, Region: req.subs[0].region, Size: int(q.sizes[k]),
		Imm: lane.Imm{Slot: lane.SlotOf(req.seq), Sub: q.sub, Part: uint8(k), Last: q.last, Again: true},
	}
	for i := range k {
		p.Offset += uint64(q.sizes[i])
	}
	p.Local = q.addr + uintptr(p.Offset)
	s.posted++
	q.number, q.lanes[k] = s.posted, l.Index // the number of all its parts: those that wait elsewhere count as later than they are
	s.sendPart(l, p)
	l.Resent.Add(uint64(p.Size))
	s.Count.Resent.Add(uint64(p.Size))
	return true
}

// soonest is the lane in service that would deliver so many bytes first to the buffer of a
// grant, or nil.
func soonestLane(lanes []*lane.Lane, size int, g *lane.Grant) (best *lane.Lane) {
	var least float64
	for _, l := range lanes {
		if !l.InService() || !l.Carrier.Reaches(g) {
			continue
		}
		if t := float64(l.Backlog+int64(size)) / l.Rate(); best == nil || t < least {
			best, least = l, t
		}
	}
	return best
}
