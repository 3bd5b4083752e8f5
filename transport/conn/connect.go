package conn

import (
	"context"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/limit"
)

// connectLanes connects each lane for which the peer sent its end, in parallel. It returns a mask of the
// lanes that are connected.
func (s *setup) connectLanes(ctx context.Context, domains []handshake.Domain, remote []handshake.Lane) uint32 {
	calls := &dials{s: s, pending: map[*lane.Lane]context.CancelCauseFunc{}, done: make(chan *lane.Lane, len(remote))}
	for i := range remote {
		r := &remote[i]
		l := s.lane(r.Index)
		if l == nil || calls.pending[l] != nil {
			continue
		}
		domain, ok := domainIndex(domains, r.Port, r.Kind)
		if !ok || lane.Kind(r.Kind) != l.Port.Kind() || r.Port != l.Peer.Index || r.PeerPort != l.Port.Index() {
			s.c.mu.Lock()
			l.Fail(fmt.Errorf("the peer's end of the lane does not match: its port %d to our port %d", r.Port, r.PeerPort))
			s.c.mu.Unlock()
			continue
		}
		if s.redundant(l, remote) {
			s.c.mu.Lock()
			l.Fail(fmt.Errorf("%v has no carrier, and other ports of %s have one", l.Port.Now(), s.c.Session.LocalName()))
			s.c.mu.Unlock()
			continue
		}
		l.Remote = *r
		calls.begin(ctx, l, domain)
	}
	calls.wait()
	var mask uint32
	for _, l := range s.lanes {
		if l.State() == lane.Connected {
			mask |= 1 << l.Index
		}
	}
	return mask
}

// redundant reports whether a lane would be removed as soon as it came into service, because its port has no
// carrier and there are lanes over ports that have one. offered are the peer's lanes.
func (s *setup) redundant(l *lane.Lane, offered []handshake.Lane) bool {
	if s.c.Probe || !l.Port.NoCarrier() {
		return false
	}
	for i := range offered {
		if o := s.lane(offered[i].Index); o != nil && !o.Port.NoCarrier() {
			return true
		}
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.otherPortInService(l.Port)
}

// relayedTimeouts is how many times ProofWait a relayed lane may take whose first relay answers. The path
// behind that relay may be dead, and the set-up may try another route.
const relayedTimeouts = 4

// dials are the lanes that are being connected. The connection of a socket validates its lane, so that the
// time limits are those of validation: ProofWait if the peer's kernel does not answer; else ProofWait after
// the first lane was connected, longer if the peer's process does not respond; and LaneWait in total.
type dials struct {
	s       *setup
	pending map[*lane.Lane]context.CancelCauseFunc // cancel functions of the lanes that are not connected yet
	done    chan *lane.Lane                        // lanes that are connected or have failed
}

// begin connects a lane in the background. domain is the index of its domain at the peer.
func (d *dials) begin(ctx context.Context, l *lane.Lane, domain int) {
	ctx, cancel := context.WithCancelCause(ctx)
	d.pending[l] = cancel
	go func() {
		err := d.s.c.guarded("connect a lane", func() error { return l.Carrier.Connect(ctx, l.Remote, domain) })
		d.s.c.mu.Lock()
		switch {
		case err == nil:
			l.Enter(lane.Connected) // no effect if the lane was stopped meanwhile
		case limit.IsOwn(err):
			l.Fail(&lane.NodeFault{Node: d.s.c.Session.LocalName(), Err: err})
		default:
			l.Fail(err)
		}
		d.s.c.mu.Unlock()
		d.done <- l
	}()
}

// wait waits until every lane is connected, has failed or has run out of time.
func (d *dials) wait() {
	s := d.s
	proof, patience := s.c.env.Clock.Scaled(s.c.env.ProofWait), s.firstLaneTimeout()
	s.clock.Start()
	begun, first := s.clock.Ran(), time.Duration(-1)
	tick := s.c.env.Clock.NewTicker(clock.LookEvery / 5)
	defer tick.Stop()
	bye := s.c.peerDone
	for len(d.pending) > 0 {
		select {
		case l := <-d.done:
			d.pending[l](nil)
			delete(d.pending, l)
			if l.State() == lane.Connected && first < 0 {
				first = s.checkClock()
			}
			continue
		case <-bye:
			bye = nil
			d.cancel(0, func(*lane.Lane) bool { return true })
		case <-tick.C:
		}
		now := s.checkClock()
		switch ran := now - begun; {
		case first >= 0 && s.overdue(first), ran >= patience:
			d.cancel(ran, func(*lane.Lane) bool { return true })
		case ran >= relayedTimeouts*proof:
			d.cancel(ran, func(l *lane.Lane) bool { return !l.Reached.Load() || l.Route != nil })
		case ran >= proof:
			d.cancel(ran, func(l *lane.Lane) bool { return !l.Reached.Load() })
		}
	}
}

// cancel cancels the pending lanes for which which returns true. ran is how long they have had.
func (d *dials) cancel(ran time.Duration, which func(*lane.Lane) bool) {
	for _, l := range d.s.lanes {
		if cancel := d.pending[l]; cancel != nil && which(l) {
			d.s.onlyKernelAnswered = d.s.onlyKernelAnswered || l.Reached.Load()
			cancel(fmt.Errorf("within %v", ran.Round(time.Millisecond)))
		}
	}
}
