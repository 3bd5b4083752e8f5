package conn

import (
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// match returns the first granted buffer for a tag that no send has taken, or nil. It reads the grants in
// order and stops at the first that has not arrived completely, because that grant may be for the tag too and
// comes first.
func (s *Sender) match(tag int32) *lane.Grant {
	if s.openEager(tag) != nil {
		return nil
	}
	for seq := s.head; ; seq++ {
		m, taken := &s.masks[lane.SlotOf(seq)], uint8(0)
		if m.seq == seq {
			taken = m.taken
		}
		if m.seq == seq && m.full {
			continue
		}
		n := 0
		if seq-s.head < lane.Window {
			n = s.readGrant(seq)
		}
		if n == 0 {
			s.eager.knownBefore = seq
			return nil
		}
		for i := range n {
			if g := &s.granted[i]; taken&(1<<i) == 0 && int32(g.Tag) == tag {
				return g
			}
		}
	}
}

// readGrant copies the entries of the grant with sequence seq into s.granted and returns their number; 0 if
// some have not arrived. The peer can write to the ring at any time, so that only the copy is checked and
// used.
func (s *Sender) readGrant(seq uint64) int {
	slot, n := s.Ring.Slot(seq), 1
	for i := 0; i < n; i++ {
		g := &s.granted[i]
		if !g.CopyFrom(&slot[i], seq) {
			return 0
		}
		if i == 0 {
			n = int(g.N)
		}
		if n < 1 || n > lane.MaxSubs || int(g.N) != n || int(g.Sub) != i {
			s.Fail(fmt.Errorf("%w: %v: grant %d: entry %d says that it is %d of %d", fault.ErrProtocol, s, seq, i, g.Sub, g.N))
			return 0
		}
	}
	return n
}

// missingGrant returns the sequence of a grant that has not arrived though a later one has, and the index of
// the lane over which it was sent. A sequence of 0 means none.
func (s *Sender) missingGrant() (seq uint64, index int) {
	wire, first := s.Ring, s.head
	for first < s.head+lane.Window && lane.Acquire(&wire.Slot(first)[0].Seq) == first {
		first++
	}
	for seq := first + 1; seq < s.head+lane.Window; seq++ {
		if e := &wire.Slot(seq)[0]; lane.Acquire(&e.Seq) == seq && e.After > 0 {
			return seq - 1, int(e.After) - 1
		}
	}
	return 0, 0
}

// mask says which buffers of a receive the sender has used.
type mask struct {
	seq   uint64 // sequence of the receive
	taken uint8  // bit i: buffer i has its message
	full  bool   // all buffers have one
}

// consumeGrant marks a granted buffer as taken by a send.
func (s *Sender) consumeGrant(g *lane.Grant) {
	before := s.head
	s.markTaken(g.Seq, g.Sub, g.N)
	if s.head != before && !s.traits.Polled { // with polled lanes C asks Go in every call
		s.board.SetHead(s.head)
	}
}

// markTaken notes that buffer sub of a receive of n buffers has its message. It advances head to the first
// receive that has a buffer without one.
func (s *Sender) markTaken(seq uint64, sub, n uint8) {
	m := &s.masks[lane.SlotOf(seq)]
	if m.seq != seq {
		*m = mask{seq: seq}
	}
	m.taken |= 1 << sub
	m.full = m.taken == uint8(1<<n-1)
	for m = &s.masks[lane.SlotOf(s.head)]; m.seq == s.head && m.full; m = &s.masks[lane.SlotOf(s.head)] {
		s.head++
	}
}

// fetch polls lanes whose grants arrive only when they are polled: the first lane in service, over which
// grants are sent, and one other lane in turn, to see whether it still works.
func (s *Sender) fetch() {
	lanes := s.lanes
	if len(lanes) == 0 {
		return
	}
	s.fetchCount++
	other := int(s.fetchCount) % len(lanes)
	first := true
	for i, l := range lanes {
		if !l.InService() || !first && i != other {
			continue
		}
		first = false
		l.Carrier.Fetch()
		if s.Ended() != nil {
			return
		}
	}
}

// outgoing handles what the lanes of a sender report.
type outgoing struct{ *Sender }

var _ lane.Sink = outgoing{}

// Granted stores a grant in the ring as a device would, the sequence last. Repeated grants are ignored if a
// lane has failed or a domain was added, because the receiver then sends grants again, or if eager messages
// were sent, because the grant of such a message may arrive after it.
func (s outgoing) Granted(seq uint64, entries []lane.Grant) error {
	slot := s.Ring.Slot(seq)
	s.advanceTo(seq)
	before := seq < s.head || slot[0].Seq >= seq
	switch {
	case before && seq > 0 && (s.Count.Failures.Value() > 0 || s.domainsAdded || s.eager.sent > 0):
		return nil
	case before, seq-s.head >= lane.Window:
		return fmt.Errorf("grant %d is out of order; %d is next", seq, s.head)
	}
	for i := range entries {
		slot[i] = entries[i]
		slot[i].Seq = seq
	}
	return nil
}

// Delivered handles the delivery of a part to the peer.
func (s outgoing) Delivered(l *lane.Lane, request, part int) {
	switch {
	case request < lane.Window:
	case request >= putBase:
		s.putDelivered(l, request-putBase, part)
		return
	case s.eager.sent > 0:
		s.eagerDelivered(l, request)
		return
	}
	if request >= len(s.requests) || !s.requests[request].active || part >= lane.MaxParts || s.requests[request].remaining&(1<<part) == 0 {
		s.Fail(fmt.Errorf("%w: %v: completion for part %d of request %d, which is not outstanding", fault.ErrInternal, s, part, request))
		return
	}
	req := &s.requests[request]
	if s.puts != nil && s.puts.signals[request].carries {
		s.carriedDelivered(l, &s.puts.signals[request])
	}
	size := int(req.sent.sizes[part])
	l.Backlog -= int64(size)
	l.Delivered++
	l.Latest = max(l.Latest, req.sent.number)
	s.noteDelivered()
	if s.measured(l) && s.measure(l, size) {
		lane.Compare(s.lanes)
	}
	s.partDelivered(req, part)
}

// partDelivered marks a part of a request as delivered, and completes the request after the last.
func (s *Sender) partDelivered(r *Request, part int) {
	if r.trace != nil {
		r.trace.end(0, uint8(part))
	}
	if r.remaining &^= 1 << part; r.remaining == 0 {
		r.complete()
	}
}

// Eager fails the connection, because a sender receives no data.
func (s outgoing) Eager(l *lane.Lane, _ lane.Eager, _ []byte) { s.Arrived(l, 0, 0) }

// Arrived fails the connection, because a sender receives no data.
func (s outgoing) Arrived(l *lane.Lane, v uint32, _ int64) {
	s.Fail(fmt.Errorf("%w: %v: %v: data arrived at the sender, immediate %#08x", fault.ErrProtocol, s, l, v))
}

// Place fails the connection, because a sender receives no data.
func (s outgoing) Place(l *lane.Lane, v uint32, _ uint64, _ uint32) (uintptr, *lane.Region, bool) {
	s.Arrived(l, v, 0)
	return 0, nil, false
}

// Dropped does nothing, because a sender receives no data.
func (s outgoing) Dropped(*lane.Lane, uint32) {}

// Regranted fails the connection, because a sender sends no grants.
func (s outgoing) Regranted(l *lane.Lane, slot uint8) {
	s.Fail(fmt.Errorf("%w: %v: %v: completion of grant %d at the sender", fault.ErrInternal, s, l, slot))
}
