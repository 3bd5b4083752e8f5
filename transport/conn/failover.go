package conn

import (
	"fmt"
	"math/bits"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// allParts, in a Report, says that all parts of a message have arrived.
const allParts = 1<<32 - 1

// slots is a set of slots of the ring.
type slots [lane.Window / 64]uint64

func (s *slots) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *slots) remove(i int)   { s[i/64] &^= 1 << (i % 64) }
func (s *slots) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s *slots) none() bool     { return *s == slots{} }

// counts has a number for each slot of the ring.
type counts [lane.Window]uint16

func (c *counts) has(i int) bool { return c[i] > 0 }

// report returns what has arrived of each incomplete receive, after lane l was drained at both ends. It
// queues the grants that went over l to be sent again if they may not have arrived.
//
// Preconditions: r is locked.
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
			r.regrantsInFlight[req.index] = 0 // the lane is drained: its grants have landed or are lost
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
		// A part that has arrived usually proves that the grant has too. It does not if the grant was sent
		// again to add a key, or if the part was an eager message.
		if over && (!begun || again || r.unexpected.everUsed()) {
			r.regrants.add(req.index)
		}
	}
	return m
}

// oldest returns a sequence such that all receives before it are complete and their slots reused.
func (r *Receiver) oldest() uint64 {
	if r.next > lane.Window {
		return r.next - lane.Window
	}
	return 1
}

// isComplete reports whether all parts of a message have arrived.
func (s *sub) isComplete() bool {
	return s.seen != 0 && bits.OnesCount32(s.seen) > int(s.last)
}

// useResendCredit uses up the credit for a part that was sent again, and reports whether there was any. When
// half of the credit is used, it posts receives and sends the sender new credit.
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

// noLaneEpoch is the epoch of a Report that only grants resend credit and is about no lane.
const noLaneEpoch = 1<<32 - 1

// resume sends grants again, in order, as far as the lanes have room. It returns false if some are left.
//
// Preconditions: r is locked.
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

// regrantLane returns the lane that can carry the grant of a receive again, or nil if there is none yet.
// Until its writes are known to have landed or are lost, that is the lane that carried the grant before. Over
// another lane the repeated grant could overtake the first, and a device would then write the first into the
// slot of a later receive. With a polled lane, the sender's processor writes the grant and ignores an old
// one.
func (r *Receiver) regrantLane(req *Request) *lane.Lane {
	switch l := r.lanes[req.lane]; {
	case l.Port.Traits().Polled, r.isSettled(l):
		return r.grantLane()
	case l.InService() && l.Carrier.Grantable():
		return l
	}
	return nil
}

// regrantForNewKeys queues the grants of all receives whose entries lack a key that their memory has now, or
// that were sent without keys: parts that are sent from now on may go over lanes that need the keys.
func (r *Receiver) regrantForNewKeys() {
	for seq := r.oldest(); seq < r.next; seq++ {
		req := &r.requests[lane.SlotOf(seq)]
		if req.active && !req.done && (r.rekey(req) || req.noKeys) {
			r.regrants.add(req.index)
		}
	}
}

// rekey writes the present keys of a receive's memory into its entries, and reports whether they lacked one.
func (r *Receiver) rekey(req *Request) (changed bool) {
	slot := r.Ring.Slot(req.seq)
	for i := range req.n {
		if g := req.subs[i].region; g != nil && slot[i].RKeys != g.RKeys {
			slot[i].RKeys, changed = g.RKeys, true
		}
	}
	return changed
}

// Regranted notes that a repeated grant has landed in the sender's ring.
func (r incoming) Regranted(_ *lane.Lane, slot uint8) {
	if r.regrantsInFlight.has(int(slot)) {
		r.regrantsInFlight[slot]--
	}
}

// settleLost settles the parts that went over lane l, which is drained at both ends. Parts without
// acknowledgement are delivered if the receiver's report m has them, and else lost and to be sent again. A
// receive that m does not name is complete. If l is nil, m only grants resend credit. settleLost returns an
// error if an acknowledged part has not arrived.
//
// Preconditions: s is locked.
func (s *Sender) settleLost(l *lane.Lane, m *handshake.Report) error {
	s.resendCredit += int(m.Again)
	if l == nil {
		return nil
	}
	s.eager.grantsRequestedAt = 0 // the lane may have lost the request
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

// partsOf returns the parts that have arrived for a send, as a report says, and whether the report names the
// receive.
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

// lostAtPeer returns the error for a part that was acknowledged and has not reached the receiver. It cannot
// be sent again, because the program may have reused its memory.
func (s *Sender) lostAtPeer(l *lane.Lane, seq uint64) error {
	return fmt.Errorf("%w: %v: %v: data of receive %d was acknowledged to %s and has not reached the program on %s: it is lost with the lane",
		fault.ErrLane, s, l, seq, s.Session.LocalName(), s.Session.Name())
}

// resume sends lost parts again, cut as before, as far as the lanes have room. A part that is lost again
// needs no further resend credit, because the receiver counts parts that arrive. Parts that wait for credit
// do not hold up others, because the receiver gives new credit only after those have arrived. resume returns
// false if some parts are left.
//
// Preconditions: s is locked.
func (s *Sender) resume() (done bool) {
	if !s.resendPending {
		return s.flushUnsent()
	}
	needsCredit := false
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
				needsCredit = true
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
	if s.resendPending = needsCredit; needsCredit {
		return false
	}
	return s.flushUnsent()
}

// flushUnsent makes the lanes hand partly sent messages to the kernel, and reports whether the kernel has
// them all. A call of Test usually does so, but an eager message that was sent again has no request to test.
func (s *Sender) flushUnsent() bool {
	if !s.hasUnsent() {
		return true
	}
	for _, l := range s.lanes {
		if l.Carrier.HasPendingOutput() {
			l.Carrier.Fetch()
		}
	}
	return !s.hasUnsent()
}

// resendPart sends part k of a request again, over the lane that would deliver it first. It returns false if
// that lane has no room, or if there is none.
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
	// The ring's entry is valid until the receive is complete. The peer may have changed it since it
	// was checked.
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
	q.number, q.lanes[k] = s.posted, l.Index // the number applies to all parts of the message, so that its other parts count as posted now
	s.sendPart(l, p)
	l.Resent.Add(uint64(p.Size))
	s.Count.Resent.Add(uint64(p.Size))
	return true
}

// soonestLane returns the lane in service that would deliver size bytes first to the buffer of a grant, or
// nil.
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
