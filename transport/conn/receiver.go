package conn

import (
	"fmt"
	"slices"

	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Buffer is the place for one message of a receive.
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
	granted int    // number of incomplete sub-receives
	waiting bool   // the wait of the next receive has been counted

	unexpected unexpected
	windows    windows
	standing   bool // see Standing
	flushes    flushes

	grants  failover.Grants    // which lane carried each grant, and which are to be sent again
	resends failover.Allowance // how many more parts the sender may send again
}

// NewReceiver makes a receiver without lanes.
func NewReceiver(env *Env, s *control.Session, id uint32) *Receiver {
	r := &Receiver{next: 1, grants: failover.NewGrants(lane.Window), resends: failover.NewAllowance(lane.Resends)}
	r.init(env, s, id, false, incoming{r})
	r.receiver = r
	r.requests = r.newRequests(lane.Window, lane.MaxSubs)
	return r
}

// Standing says that the owner keeps receives outstanding always, and that they are no unfinished work when it closes the connection. Brief
// signals may arrive for them, which TestSignal tells from other messages.
func (r *Receiver) Standing() {
	r.Lock()
	r.standing = true
	r.Unlock()
}

// retract ends all outstanding receives, which no data comes for any more.
//
// Preconditions: r is locked, and the connection is being closed.
func (r *Receiver) retract() {
	for i := range r.requests {
		if req := &r.requests[i]; req.active && !req.done {
			req.active = false
			r.pending--
			r.granted -= int(req.remaining)
			req.releaseBuffers()
		}
	}
}

// Irecv grants bufs to the sender, 1 to 8 buffers for one message each, which are matched by tag. It returns
// nil if the window of 256 is full; the caller then tests outstanding requests and tries again.
func (r *Receiver) Irecv(bufs []Buffer) (*Request, error) {
	if !r.TryLock() {
		return nil, nil
	}
	defer r.Unlock()
	eagerOnly := false // the peer has closed, and only its eager messages can be received
	if err := r.checkUsable("receive"); err != nil {
		if eagerOnly = r.hasEagerAfterClose(); !eagerOnly {
			return nil, err
		}
	}
	if err := r.check(bufs); err != nil {
		return nil, err
	}
	n := len(bufs)
	req := &r.requests[lane.SlotOf(r.next)]
	l, deferred := r.grantLane(), eagerOnly || r.unexpected.deferGrants && n == 1
	if l == nil && !deferred || !r.canGrant(req, n) {
		r.poll()
		if l, deferred = r.grantLane(), eagerOnly || r.unexpected.deferGrants && n == 1; l == nil && !deferred || !r.canGrant(req, n) {
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
	case deferred:
		r.deferGrant(req)
	default:
		r.reportMatched()
		r.sendGrant(l, req, entries, false)
	}
	return r.show(req), nil
}

// deferGrant does not send the grant of a receive yet. It sends acknowledgements, which would have been sent
// along with the grant, without it.
func (r *Receiver) deferGrant(req *Request) {
	req.noKeys = true
	r.unexpected.deferred.add(req.index)
	r.acknowledge()
}

// hasEagerAfterClose reports whether eager messages wait for their receives from a peer that has closed the
// connection or whose process has ended.
func (r *Receiver) hasEagerAfterClose() bool {
	if !r.traits.Eager || !r.peerClosed() {
		return false
	}
	if !r.unexpected.hasAny() {
		r.pollAll()
	}
	return r.unexpected.hasAny()
}

// firstLane returns the first lane in service, or nil.
func (r *Receiver) firstLane() *lane.Lane {
	lanes := r.lanes
	if i := slices.IndexFunc(lanes, (*lane.Lane).InService); i >= 0 {
		return lanes[i]
	}
	return nil
}

// canGrant reports whether a receive of n buffers can be granted as req.
func (r *Receiver) canGrant(req *Request, n int) bool {
	return !req.busy() && r.granted+n <= lane.Window && r.grants.MayGrant(uint8(req.index))
}

// prepare makes all lanes ready to receive the parts that the next grant, or report, asks for.
func (r *Receiver) prepare() {
	for _, k := range r.lanes {
		if k.InService() {
			if err := k.Carrier.Prepare(); err != nil {
				k.Break(err)
			}
		}
	}
}

// sendGrant sends the grant of a receive over a lane. If the lane does not take it, the lane fails, and the
// grant is sent again after that.
func (r *Receiver) sendGrant(l *lane.Lane, req *Request, entries []lane.Grant, again bool) {
	if slot := uint8(req.index); again {
		r.grants.Repeated(slot, l.Index)
	} else {
		r.grants.Sent(slot, l.Index)
	}
	req.noKeys = r.traits.Polled && l.Port.Traits().Polled
	if err := l.Carrier.SendGrant(req.seq, entries, again); err != nil {
		l.Break(err)
	}
}

// check returns an error if the buffers of a receive are not valid.
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

// grant makes req outstanding and writes its buffers into the local copy of the ring.
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

// laneBefore returns the index of the lane that carried the grant before seq, plus 1, or 0 if no lane is
// known. From it the sender knows which lane to suspect if that grant does not arrive.
func (r *Receiver) laneBefore(seq uint64) uint8 {
	before := &r.requests[lane.SlotOf(seq-1)]
	if before.seq != seq-1 || before.seq == 0 || before.noKeys {
		return 0
	}
	return r.grants.Lane(uint8(before.index)) + 1
}

// grantLane returns the lane that carries the next grant, or nil. Lanes that are not polled take turns. If
// there are none it returns the first polled lane, which the sender polls most. A grant over a polled lane
// has no keys, which the other lanes need.
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
