package transport

import (
	"context"
	"fmt"
	"time"

	"ncclmesh/handshake"
)

// connectLanes connects each lane for which the peer gave its half, in parallel,
// and returns those that are ready to send.
func (c *conn) connectLanes(ctx context.Context, devs []handshake.Device, remote []handshake.Lane) uint32 {
	calls := &calls{c: c, open: map[*lane]context.CancelCauseFunc{}, over: make(chan *lane, len(remote))}
	for i := range remote {
		r := &remote[i]
		if int(r.Index) >= len(c.lanes) || calls.open[c.lanes[r.Index]] != nil {
			continue
		}
		l := c.lanes[r.Index]
		dev, ok := deviceOf(devs, r.Port)
		if r.Kind != l.port.carries() || !ok && !l.port.plain() || r.Port != l.peer.Index || r.PeerPort != l.port.index {
			l.reason = fmt.Sprintf("the peer's half does not fit: port %d to our port %d", r.Port, r.PeerPort)
			continue
		}
		l.remote = *r
		calls.begin(ctx, l, dev)
	}
	calls.wait()
	var mask uint32
	for _, l := range c.lanes {
		if l.ready {
			mask |= 1 << l.index
		}
	}
	return mask
}

// calls are lanes being connected. Sockets, whose connection is their proof, are
// given up by the rules of proofs: one whose peer's kernel does not answer after
// ProofWait; all others ProofWait after the first, or LaneWait after the beginning.
type calls struct {
	c    *conn
	open map[*lane]context.CancelCauseFunc
	over chan *lane
}

// begin connects a lane.
func (s *calls) begin(ctx context.Context, l *lane, dev int) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.open[l] = cancel
	go func() {
		connect := func() error { return l.connect(ctx, l.remote, dev) }
		if !l.port.plain() {
			verb := connect
			connect = func() error { return s.c.t.resolving.do(verb) }
		}
		err := s.c.t.guarded("connect a lane", connect)
		if l.ready = err == nil; err != nil {
			l.unusable(err)
		}
		s.over <- l
	}()
}

// wait waits until every lane is connected or given up.
func (s *calls) wait() {
	c, o := s.c, &s.c.t.opts
	c.clock.start()
	begun, first := c.clock.ran, time.Duration(-1)
	tick := time.NewTicker(lookEvery / 5)
	defer tick.Stop()
	bye := c.bye
	for len(s.open) > 0 {
		select {
		case l := <-s.over:
			s.open[l](nil)
			delete(s.open, l)
			if l.ready && first < 0 {
				first = c.look()
			}
			continue
		case <-bye:
			bye = nil
			s.cancel(0, func(*lane) bool { return true })
		case <-tick.C:
		}
		now := c.look()
		switch ran, proof := now-begun, o.scaled(o.ProofWait); {
		case first >= 0 && now-first >= proof, ran >= o.scaled(o.LaneWait):
			s.cancel(ran, func(*lane) bool { return true })
		case ran >= proof:
			s.cancel(ran, func(l *lane) bool { return !l.reached.Load() })
		}
	}
}

// cancel gives lanes up.
func (s *calls) cancel(ran time.Duration, which func(*lane) bool) {
	for l, cancel := range s.open {
		if which(l) {
			s.c.mute = s.c.mute || l.reached.Load()
			cancel(fmt.Errorf("within %v", ran.Round(time.Millisecond)))
		}
	}
}
