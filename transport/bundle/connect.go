package bundle

import (
	"context"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/limit"
)

// connectLanes connects each lane for which the peer gave its half, in parallel,
// and returns those that are ready to send.
func (b *Bundle) connectLanes(ctx context.Context, domains []handshake.Domain, remote []handshake.Lane) uint32 {
	calls := &calls{b: b, open: map[*lane.Lane]context.CancelCauseFunc{}, over: make(chan *lane.Lane, len(remote))}
	for i := range remote {
		r := &remote[i]
		if int(r.Index) >= len(b.lanes) || calls.open[b.lanes[r.Index]] != nil {
			continue
		}
		l := b.lanes[r.Index]
		place, ok := placeOf(domains, r.Port)
		if !ok || lane.Kind(r.Kind) != l.Port.Kind() || r.Port != l.Peer.Index || r.PeerPort != l.Port.Index() {
			l.Fail(fmt.Errorf("the peer's half does not fit: port %d to our port %d", r.Port, r.PeerPort))
			continue
		}
		l.Remote = *r
		calls.begin(ctx, l, place)
	}
	calls.wait()
	var mask uint32
	for _, l := range b.lanes {
		if l.State() == lane.Connected {
			mask |= 1 << l.Index
		}
	}
	return mask
}

// calls are lanes being connected. Sockets, whose connection is their proof, are
// given up by the rules of proofs: one whose peer's kernel does not answer after
// ProofWait; all others ProofWait after the first, or LaneWait after the beginning.
type calls struct {
	b    *Bundle
	open map[*lane.Lane]context.CancelCauseFunc
	over chan *lane.Lane
}

// begin connects a lane.
func (s *calls) begin(ctx context.Context, l *lane.Lane, place int) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.open[l] = cancel
	go func() {
		err := s.b.guarded("connect a lane", func() error { return l.Connect(ctx, l.Remote, place) })
		switch {
		case err == nil:
			l.Enter(lane.Connected)
		case limit.IsOwn(err):
			l.Fail(&lane.NodeFault{Node: s.b.Session.LocalName(), Err: err})
		default:
			l.Fail(err)
		}
		s.over <- l
	}()
}

// wait waits until every lane is connected or given up.
func (s *calls) wait() {
	b := s.b
	proof, patience := b.env.Scaled(b.env.ProofWait), b.env.Scaled(b.env.LaneWait)
	b.clock.start()
	begun, first := b.clock.ran, time.Duration(-1)
	tick := time.NewTicker(lookEvery / 5)
	defer tick.Stop()
	bye := b.bye
	for len(s.open) > 0 {
		select {
		case l := <-s.over:
			s.open[l](nil)
			delete(s.open, l)
			if l.State() == lane.Connected && first < 0 {
				first = b.look()
			}
			continue
		case <-bye:
			bye = nil
			s.cancel(0, func(*lane.Lane) bool { return true })
		case <-tick.C:
		}
		now := b.look()
		switch ran := now - begun; {
		case first >= 0 && now-first >= proof, ran >= patience:
			s.cancel(ran, func(*lane.Lane) bool { return true })
		case ran >= proof:
			s.cancel(ran, func(l *lane.Lane) bool { return !l.Reached.Load() })
		}
	}
}

// cancel gives lanes up.
func (s *calls) cancel(ran time.Duration, which func(*lane.Lane) bool) {
	for l, cancel := range s.open {
		if which(l) {
			s.b.mute = s.b.mute || l.Reached.Load()
			cancel(fmt.Errorf("within %v", ran.Round(time.Millisecond)))
		}
	}
}
