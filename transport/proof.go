package transport

import (
	"context"
	"fmt"
	"time"

	"ncclmesh/handshake"
)

// proofs finds out which lanes of a connection work.
//
// A lane is proved when this side's proof has been acknowledged and the peer's
// has arrived. It is down when its carrier has failed, here or, as LaneDown tells,
// there: adapters and kernels answer for processes that do not run, so that their
// silence is evidence of a dead path. A proof that a process has not sent yet is
// evidence of nothing but that the process is slow, and is waited for.
//
// The sender says when it is over:
//
//   - when every lane is proved or down,
//   - ProofWait after the first lane was proved,
//   - LaneWait after the beginning, when none was.
//
// Its Proved says so to the receiver, which has no limit of its own but for the
// lanes that the sender names: ProofWait. Only time in which this process ran
// counts; see clock. When no lane of a trial was proved and either process did
// not run for a while, or lacked something, the lanes may have failed for that
// reason, and the trial is made again, until LaneWait has passed; see slowness.
type proofs struct {
	c       *conn
	pending uint32
	proved  uint32
	sent    uint32            // lanes whose proof has been acknowledged
	theirs  *handshake.Proved // the sender's last word
	begun   time.Duration     // on the connection's clock
	first   time.Duration     // when the first lane was proved
	heard   time.Duration     // when the sender's word came
}

// prove sends this side's proof over the lanes in mask and waits for the outcome.
// At the receiver it returns what the sender says, too.
func (c *conn) prove(ctx context.Context, mask uint32) (uint32, *handshake.Proved, error) {
	p := &proofs{c: c, pending: mask}
	c.clock.start()
	p.begun = c.clock.ran
	p.post()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, p.rest()) {
		p.look()
		if err := c.ended(); err != nil {
			return 0, nil, err
		}
		if p.over() {
			p.giveUp()
			return p.proved, p.theirs, nil
		}
		timer.Reset(wait)
		select {
		case m := <-c.inbox:
			if err := p.hear(m); err != nil {
				return 0, nil, err
			}
			wait = 20 * time.Microsecond
		case <-timer.C:
		case <-c.bye:
		case <-ctx.Done():
			return 0, nil, c.abandoned()
		}
	}
}

// rest is how long to sleep at most between two looks.
func (p *proofs) rest() time.Duration {
	switch {
	case p.pending == 0:
		return lookEvery
	case p.c.clock.ran-p.begun < p.c.t.opts.scaled(p.c.t.opts.ProofWait):
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// post sends this side's proofs.
func (p *proofs) post() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, l := range p.c.lanes {
		if p.pending&(1<<l.index) != 0 {
			if err := p.c.t.guarded("proof", l.postProof); err != nil {
				p.down(l, err)
			}
		}
	}
}

// look notes what has become of the pending lanes.
func (p *proofs) look() {
	c := p.c
	now := c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		bit := uint32(1) << l.index
		if p.pending&bit == 0 {
			continue
		}
		var sent, came bool
		err := c.t.guarded("proof", func() (err error) { sent, came, err = l.proved(); return err })
		if sent {
			p.sent |= bit
		}
		switch {
		case err != nil:
			p.down(l, err)
		case sent && came:
			if p.proved == 0 {
				p.first = now
			}
			p.proved |= bit
			p.pending &^= bit
		}
	}
}

// down gives a lane up on this side's evidence.
func (p *proofs) down(l *lane, err error) {
	l.reason = err.Error()
	p.pending &^= 1 << l.index
	_ = p.c.s.Send(&handshake.LaneDown{Conn: p.c.id, Lane: l.index, Reason: clip(l.reason, handshake.MaxReason-4)}) // a dead session ends the proofs anyway
}

// hear takes a message of the peer's.
func (p *proofs) hear(m handshake.Message) error {
	c := p.c
	switch m := m.(type) {
	case *handshake.LaneDown:
		c.laneDown(m)
		p.pending &^= 1 << m.Lane
		p.proved &^= 1 << m.Lane
		return nil
	case *handshake.Proved:
		if !c.sending {
			p.theirs, p.heard = m, c.clock.ran
			p.lacking(^m.Lanes)
			p.pending &= m.Lanes
			return nil
		}
	}
	return c.outOfPlace(m, handshake.TypeProved)
}

// over reports whether nothing more is waited for.
func (p *proofs) over() bool {
	o, now := &p.c.t.opts, p.c.clock.ran
	switch {
	case !p.c.sending:
		return p.theirs != nil && (p.pending == 0 || now-p.heard >= o.scaled(o.ProofWait))
	case p.pending == 0:
		return true
	case p.proved != 0:
		return now-p.first >= o.scaled(o.ProofWait)
	}
	return now-p.begun >= o.scaled(o.LaneWait)
}

// giveUp says of the lanes still pending what is known.
func (p *proofs) giveUp() {
	c := p.c
	for _, l := range c.lanes {
		bit := uint32(1) << l.index
		if p.pending&bit == 0 {
			continue
		}
		wait := (c.clock.ran - p.begun).Round(time.Millisecond)
		l.reason = fmt.Sprintf("no packet passed within %v", wait)
		if p.sent&bit != 0 {
			l.reason = fmt.Sprintf("a packet arrived there and none came back within %v", wait)
			c.mute = true
		}
	}
	p.lacking(p.pending)
}

// lacking says of sockets that have not come what this side lacked for them.
func (p *proofs) lacking(lanes uint32) {
	for _, l := range p.c.lanes {
		k, ok := l.carrier.(*socket)
		if !ok || lanes&(1<<l.index) == 0 || k.call == nil {
			continue
		}
		if err := p.c.t.data.Why(k.call); err != nil {
			l.unusable(err)
			l.lacking(err)
		}
	}
}

// laneDown notes the peer's evidence against a lane.
func (c *conn) laneDown(m *handshake.LaneDown) {
	if int(m.Lane) < len(c.lanes) && c.lanes[m.Lane].reason == "" {
		c.lanes[m.Lane].reason = c.s.Name() + ": " + m.Reason
	}
}

// look looks at the clock of a set-up, and whether the peer answers on the session.
func (c *conn) look() time.Duration {
	c.late = max(c.late, c.s.Unanswered())
	return c.clock.look()
}

// slowness says why the failure of lanes may be no evidence against their paths:
// one of the two processes did not run while they were tried, or lacked something.
// It is empty when neither is known.
func (c *conn) slowness() string {
	prompt := c.t.opts.scaled(c.t.opts.ProofWait) / 4
	peer := c.s.Name()
	for _, l := range c.lanes {
		if l.lack != "" {
			return l.lack
		}
	}
	switch {
	case c.clock.lost > prompt:
		return fmt.Sprintf("this process on %s did not run for %v meanwhile: it was stopped, or the processors have too much to do", c.s.LocalName(), c.clock.lost.Round(time.Millisecond))
	case c.late > prompt:
		return fmt.Sprintf("the process on %s did not answer for %v: it is slow or stopped, or its processors have too much to do", peer, c.late.Round(time.Millisecond))
	case c.mute:
		return fmt.Sprintf("%s is there and the process on it has not gone on: it is slow or stopped", peer)
	}
	return ""
}
