package conn

import (
	"fmt"
	"slices"

	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Buffer is where one message of a receive goes.
type Buffer struct {
	Addr   uintptr
	Size   int
	Tag    int32
	Region *lane.Region
}

// Receiver is the end of a connection that receives.
type Receiver struct {
	Conn
	next    uint64 // sequence of the next receive
	granted int    // sub-receives outstanding
	waiting bool   // the next receive has been counted in waits

	unexpected unexpected

	regrants         slots  // of receives that are to be granted again
	regrantsInFlight counts // of grants that were sent again and may not have come, by slot
	resendCredit     int    // parts that may yet arrive again
}

// NewReceiver makes a receiver that has no lanes yet.
func NewReceiver(env *Env, s *control.Session, id uint32) *Receiver {
	r := &Receiver{next: 1}
	r.init(env, s, id, false, incoming{r})
	r.receiver = r
	r.requests = r.newRequests(lane.Window, lane.MaxSubs)
	return r
}

// Irecv grants bufs, at most 8, to the sender: one message each, matched by tag.
// It returns nil when the window of 256 is full; the caller tests what is
// outstanding and tries again.
func (r *Receiver) Irecv(bufs []Buffer) (*Request, error) {
	if !r.TryLock() {
		return nil, nil
	}
	defer r.Unlock()
	left := false
	if err := r.checkUsable("receive"); err != nil {
		if left = r.hasEagerAfterClose(); !left {
			return nil, err
		}
	}
	if err := r.check(bufs); err != nil {
		return nil, err
	}
	n := len(bufs)
	req := &r.requests[lane.SlotOf(r.next)]
	l, keep := r.grantLane(), left || r.unexpected.deferGrants && n == 1
	if l == nil && !keep || !r.canGrant(req, n) {
		r.poll()
		if l, keep = r.grantLane(), left || r.unexpected.deferGrants && n == 1; l == nil && !keep || !r.canGrant(req, n) {
			if !r.waiting {
				r.waiting = true
				r.Count.Waits.Add(1)
			}
			return nil, r.Ended()
		}
	}
	r.waiting = false
	r.prepare()
	entries := r.grant(req, bufs)
	r.next++
	r.granted += n
	if r.unexpected.hasAny() {
		r.matchEager(nil)
	}
	switch {
	case req.done:
	case keep:
		r.deferGrant(req)
	default:
		r.reportMatched()
		r.sendGrant(l, req, entries, false)
	}
	return r.show(req), nil
}

// deferGrant keeps the grant of a receive back. What that would have taken along, an
// acknowledgement of parts that came over grants, goes without it.
func (r *Receiver) deferGrant(req *Request) {
	req.noKeys = true
	r.unexpected.deferred.add(req.index)
	r.acknowledge()
}

// hasEagerLeft reports whether a peer that has closed the connection, or has ended, has left
// eager messages behind.
func (r *Receiver) hasEagerAfterClose() bool {
	if !r.traits.Eager || !r.peerClosed() {
		return false
	}
	if !r.unexpected.hasAny() {
		r.pollAll()
	}
	return r.unexpected.hasAny()
}

// firstLane is the first lane in service, or nil.
func (r *Receiver) firstLane() *lane.Lane {
	lanes := r.lanes
	if i := slices.IndexFunc(lanes, (*lane.Lane).InService); i >= 0 {
		return lanes[i]
	}
	return nil
}

// free reports whether a receive of n buffers can be granted as req. Receives that are
// to be granted again come first, and a slot whose grant may yet be written again is
// not used: that would land on the new one.
func (r *Receiver) canGrant(req *Request, n int) bool {
	return !req.busy() && r.granted+n <= lane.Window && r.regrants.none() && !r.regrantsInFlight.has(req.index)
}

// prepare makes the lanes ready to receive what the next grant, or report, asks for.
func (r *Receiver) prepare() {
	for _, k := range r.lanes {
		if k.InService() {
			if err := k.Carrier.Prepare(); err != nil {
				k.Break(err)
			}
		}
	}
}

// sendGrant gives a lane the grant of a receive. One that it does not take is lost with it.
func (r *Receiver) sendGrant(l *lane.Lane, req *Request, entries []lane.Grant, again bool) {
	req.lane, req.noKeys = l.Index, r.traits.Polled && l.Port.Traits().Polled
	if err := l.Carrier.SendGrant(req.seq, entries, again); err != nil {
		l.Break(err)
	}
}

// check reports what is wrong with the buffers of a receive.
func (r *Receiver) check(bufs []Buffer) error {
	if n := len(bufs); n < 1 || n > lane.MaxSubs {
		return fmt.Errorf("%w: %v: receive of %d buffers; 1 to %d are allowed", fault.ErrUsage, r, n, lane.MaxSubs)
	}
	for i := range bufs {
		b := &bufs[i]
		if b.Size < 0 || b.Size > 1<<32-1 || b.Size > 0 && !b.Region.Covers(b.Addr, b.Size) {
			return fmt.Errorf("%w: %v: receive of %d bytes at %#x is outside the registered memory", fault.ErrUsage, r, b.Size, b.Addr)
		}
	}
	return nil
}

// grant makes req outstanding and writes its buffers into the shadow of the ring.
func (r *Receiver) grant(req *Request, bufs []Buffer) []lane.Grant {
	n := len(bufs)
	r.begin(req, n)
	req.remaining, req.seq = uint32(n), r.next
	slot := r.Ring.Slot(r.next)
	for i := range bufs {
		b, g := &bufs[i], &slot[i]
		g.Addr, g.Capacity, g.Tag = uint64(b.Addr), uint32(b.Size), uint32(b.Tag)
		g.N, g.Sub, g.After, g.Seq = uint8(n), uint8(i), r.laneBefore(r.next), r.next
		s := &req.subs[i]
		s.addr, s.capacity = b.Addr, uint32(b.Size)
		s.size, s.begun, s.seen, s.last, s.deregistered = 0, 0, 0, 0, false
		if b.Size > 0 {
			g.RKeys = b.Region.RKeys
			b.Region.InUse++
			s.region = b.Region
		} else {
			clear(g.RKeys[:])
			s.region = nil
		}
	}
	return slot[:n]
}

// after says over which lane the grant before seq went: if it does not come, that is why.
func (r *Receiver) laneBefore(seq uint64) uint8 {
	before := &r.requests[lane.SlotOf(seq-1)]
	if before.seq != seq-1 || before.seq == 0 || before.noKeys {
		return 0
	}
	return before.lane + 1
}

// grantLane is the lane that carries the next grant, or nil. Lanes of devices take
// turns. Where there are none it is a passive lane, of which the sender looks at the
// first: a grant over one says nothing of where the buffer lies, which a device must
// know.
func (r *Receiver) grantLane() *lane.Lane {
	lanes := r.lanes
	devices := false
	for i := range lanes {
		l := lanes[(int(r.next)+i)%len(lanes)]
		if !l.InService() || l.Port.Traits().Polled {
			continue
		}
		if devices = true; l.Carrier.Grantable() {
			return l
		}
	}
	if l := r.firstLane(); !devices && l != nil && l.Carrier.Grantable() {
		return l
	}
	return nil
}
