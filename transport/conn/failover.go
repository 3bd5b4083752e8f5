package conn

import (
	"fmt"
	"math/bits"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// allParts, in a Report, says that all parts of a message have arrived.
const allParts = 1<<32 - 1

// slots is a set of slots of the ring.
type slots [lane.Window / 64]uint64

func (s *slots) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *slots) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// report returns what has arrived of each incomplete receive, after lane l was drained at both ends. It
// queues the grants that went over l to be sent again if they may not have landed.
//
// Preconditions: r is locked.
func (r *Receiver) report(l *lane.Lane) *handshake.Report {
	r.prepare()
	m := &handshake.Report{Again: uint16(r.resends.Renew())}
	m.Eager, m.Ahead = r.unexpected.arrived()
	r.unexpected.markUnreported()
	r.sendDeferredGrants()
	var incomplete []failover.Receive
	for seq := r.oldest(); seq < r.next; seq++ {
		req := &r.requests[lane.SlotOf(seq)]
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
		// A part that has arrived proves that its grant has too, unless it may have been an eager message.
		incomplete = append(incomplete, failover.Receive{Slot: uint8(req.index), Proved: begun && !r.unexpected.everUsed()})
	}
	r.grants.Settle(l.Index, incomplete)
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
	ok, due := r.resends.Use()
	if due {
		r.prepare()
		r.sendOrFail(&handshake.Report{Conn: r.ID, Again: uint16(r.resends.Renew()), Epoch: noLaneEpoch})
	}
	return ok
}

// noLaneEpoch is the epoch of a Report that only grants resend credit and is about no lane.
const noLaneEpoch = 1<<32 - 1

// resume sends grants again, in order, as far as the lanes have room. It returns false if some are left.
//
// Preconditions: r is locked.
func (r *Receiver) resume() (done bool) {
	r.reportMatched()
	done = true
	for seq := r.oldest(); seq < r.next && r.grants.Waiting(); seq++ {
		slot := lane.SlotOf(seq)
		req := &r.requests[slot]
		switch {
		case !r.grants.Waits(slot):
			continue
		case !req.active || req.done:
			r.grants.Drop(slot)
			continue
		}
		l := r.regrantLane(req)
		if l == nil {
			done = false
			continue
		}
		r.rekey(req)
		for i := range req.n {
			r.Ring.Slot(seq)[i].After = r.laneBefore(seq)
		}
		r.sendGrant(l, req, r.Ring.Slot(seq)[:req.n], true)
	}
	return done
}

// regrantLane returns the lane that can carry the grant of a receive again, or nil if there is none yet. That
// is the lane that carried the grant before, as long as the grant may not move to another.
func (r *Receiver) regrantLane(req *Request) *lane.Lane {
	slot := uint8(req.index)
	switch l := r.lanes[r.grants.Lane(slot)]; {
	case r.grants.MayMove(slot, &r.failover, l.Port.Traits().Polled):
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
			r.grants.Repeat(uint8(req.index))
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
	r.grants.Landed(slot)
}

// settleLost settles the parts that went over lane l, which is drained at both ends. Parts without
// acknowledgement are delivered if the receiver's report m has them, and else lost and to be sent again. A
// receive that m does not name is complete. If l is nil, m only grants resend credit. settleLost returns an
// error if an acknowledged part has not arrived.
//
// Preconditions: s is locked.
func (s *Sender) settleLost(l *lane.Lane, m *handshake.Report) error {
	s.resendCredit.Add(int(m.Again))
	if l == nil {
		return nil
	}
	s.eager.grantsRequestedAt = 0 // the lane may have lost the request
	if s.puts != nil {
		s.settlePuts(l, s.proven(l, m))
	}
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
		delivered, ok := req.sent.Settle(l.Index, req.remaining, named, parts)
		if !ok {
			return s.lostAtPeer(l, req.seq)
		}
		s.resendPending = s.resendPending || req.sent.Lost != 0
		for ; delivered != 0; delivered &= delivered - 1 {
			s.partDelivered(req, bits.TrailingZeros32(delivered))
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
	if s.puts != nil && !s.resendPuts() {
		return false
	}
	needsCredit, waits := false, false
	for i := range s.requests {
		req := &s.requests[i]
		if !req.active || req.done {
			continue
		}
		for lost := req.sent.Lost; lost != 0; lost &= req.sent.Lost {
			k := bits.TrailingZeros32(lost)
			lost &^= 1 << k
			switch {
			case req.isEager() && s.resendEager(req):
			case s.mustWait(req):
				waits = true
			case !req.isEager() && !s.resendCredit.MaySend(&req.sent.Parts, k):
				needsCredit = true
			case req.isEager(), !s.resendPart(req, k):
				return false
			}
		}
	}
	if s.resendPending = needsCredit || waits; s.resendPending {
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
		Imm: lane.Imm{Slot: lane.SlotOf(req.seq), Sub: q.sub, Part: uint8(k), Last: q.Last, Again: true},
	}
	p.Imm.Brief, p.Imm.Number = s.briefOf(req)
	for i := range k {
		p.Offset += uint64(q.sizes[i])
	}
	p.Local = q.addr + uintptr(p.Offset)
	s.resendCredit.Sent(&q.Parts, k, l.Index)
	s.posted++
	q.number = s.posted // the number applies to all parts of the message, so that its other parts count as posted now
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
