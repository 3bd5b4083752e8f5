package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane"
)

// validation finds out which lanes of a connection work.
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
//   - ProofWait after the first lane was proved, and as much later as the peer's process
//     has not answered on the session: it may have been stopped between two proofs,
//   - LaneWait after the beginning, when none was; ProofWait where lanes join others.
//
// Its Proved says so to the receiver, which has no limit of its own but for the
// lanes that the sender names: ProofWait, and as much later. Only time in which this process ran
// counts; see clock. When no lane of a trial was proved and either process did
// not run for a while, or lacked something, the lanes may have failed for that
// reason, and the trial is made again, until LaneWait has passed; see Slowness.
type validation struct {
	s       *setup
	pending uint32
	proved  uint32
	sent    uint32            // lanes whose proof has been acknowledged
	theirs  *handshake.Proved // the sender's last word
	begun   time.Duration     // on the connection's clock
	first   time.Duration     // when the first lane was proved
	heard   time.Duration     // when the sender's word came
}

// validate sends this side's proof over the lanes in mask and waits for the outcome.
// At the receiver it returns what the sender says, too.
func (s *setup) validate(ctx context.Context, mask uint32) (uint32, *handshake.Proved, error) {
	p := &validation{s: s, pending: mask}
	s.clock.Start()
	p.begun, s.asked = s.clock.Ran(), false
	p.post()
	timer := s.c.env.Clock.NewTimer(0)
	defer timer.Stop()
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, p.rest()) {
		p.look()
		if err := s.c.Ended(); err != nil {
			return 0, nil, err
		}
		if p.over() {
			p.giveUp()
			return p.proved, p.theirs, nil
		}
		timer.Reset(wait)
		select {
		case m := <-s.inbox:
			if err := p.handle(m); err != nil {
				return 0, nil, err
			}
			wait = 20 * time.Microsecond
		case <-timer.C:
		case <-s.c.bye:
		case <-ctx.Done():
			return 0, nil, s.c.abandoned()
		}
	}
}

// rest is how long to sleep at most between two looks.
func (p *validation) rest() time.Duration {
	switch {
	case p.pending == 0:
		return clock.LookEvery
	case p.s.clock.Ran()-p.begun < p.s.c.env.Scaled(p.s.c.env.ProofWait):
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// post sends this side's proofs.
func (p *validation) post() {
	p.s.c.mu.Lock()
	defer p.s.c.mu.Unlock()
	for _, l := range p.s.own {
		if p.pending&(1<<l.Index) != 0 {
			if err := p.s.c.guarded("proof", l.Carrier.PostProbe); err != nil {
				p.down(l, err)
			}
		}
	}
}

// look notes what has become of the pending lanes.
func (p *validation) look() {
	s := p.s
	now := s.look()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.own {
		bit := uint32(1) << l.Index
		if p.pending&bit == 0 {
			continue
		}
		var sent, came bool
		err := s.c.guarded("proof", func() (err error) { sent, came, err = l.Carrier.Probed(); return err })
		if err == nil {
			err = l.Failure()
		}
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
//
// Preconditions: the connection is locked.
func (p *validation) down(l *lane.Lane, err error) {
	l.Fail(err)
	p.pending &^= 1 << l.Index
	p.s.c.sayDown(l)
}

// handle takes a message of the peer's.
func (p *validation) handle(m handshake.Message) error {
	s := p.s
	switch m := m.(type) {
	case *handshake.LaneDown:
		s.laneFailed(m.Lane, handshake.CausePath, m.Reason)
		p.pending &^= 1 << m.Lane
		p.proved &^= 1 << m.Lane
		return nil
	case *handshake.Proved:
		if !s.c.Sending {
			p.theirs, p.heard = m, s.clock.Ran()
			s.c.mu.Lock()
			p.recordLocalErrors(^m.Lanes)
			s.c.mu.Unlock()
			p.pending &= m.Lanes
			return nil
		}
	}
	return s.c.outOfPlace(m, handshake.TypeProved)
}

// over reports whether nothing more is waited for.
func (p *validation) over() bool {
	switch {
	case !p.s.c.Sending:
		return p.theirs != nil && (p.pending == 0 || p.s.overdue(p.heard))
	case p.pending == 0:
		return true
	case p.proved != 0:
		return p.s.overdue(p.first)
	}
	return p.s.clock.Ran()-p.begun >= p.s.patience()
}

// giveUp says of the lanes still pending what is known.
func (p *validation) giveUp() {
	s := p.s
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.own {
		bit := uint32(1) << l.Index
		if p.pending&bit == 0 {
			continue
		}
		wait := (s.clock.Ran() - p.begun).Round(time.Millisecond)
		why := fmt.Errorf("no packet passed within %v", wait)
		if p.sent&bit != 0 {
			why = fmt.Errorf("a packet arrived there and none came back within %v", wait)
			s.mute = true
		}
		l.Fail(why)
	}
	p.recordLocalErrors(p.pending)
}

// recordLocalErrors says of lanes that have not come what this side lacked for them.
//
// Preconditions: the connection is locked.
func (p *validation) recordLocalErrors(lanes uint32) {
	for _, l := range p.s.own {
		if lanes&(1<<l.Index) == 0 {
			continue
		}
		if err := l.Carrier.LocalError(); err != nil {
			l.Fail(&lane.NodeFault{Node: p.s.c.Session.LocalName(), Err: err})
		}
	}
}

// laneFailed notes why a lane has failed at the peer. What the peer lacked explains what
// has been seen here.
func (s *setup) laneFailed(index uint8, cause handshake.Cause, why string) {
	l, node := s.lane(index), s.c.Session.Name()
	if l == nil {
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case isNodeFault(l.Why()):
	case cause == handshake.CauseNode:
		l.Fail(&lane.NodeFault{Node: node, Err: errors.New(why)})
	case l.Why() == nil:
		l.Fail(fmt.Errorf("%s: %s", node, why))
	}
}

func isNodeFault(err error) bool {
	var f *lane.NodeFault
	return errors.As(err, &f)
}

// overdue reports whether lanes that are missing have had their time, which began at since,
// on the set-up's clock: ProofWait, and as long as the peer's process has not answered,
// LaneWait at most. Meanwhile it asks the peer for a sign of life, once: one that owes
// nothing could not be told from one that is stopped.
func (s *setup) overdue(since time.Duration) bool {
	wait, ran := s.c.env.Scaled(s.c.env.ProofWait), s.clock.Ran()-since
	if ran >= wait/4 && !s.asked {
		s.asked = true
		s.c.Session.Silence()
	}
	return ran >= wait+min(s.late, s.c.env.Scaled(s.c.env.LaneWait))
}

// look looks at the clock of a set-up, and whether the peer answers on the session.
func (s *setup) look() time.Duration {
	s.late = max(s.late, s.c.Session.Unanswered())
	return s.clock.Look()
}

// Slowness says why the failure of lanes may be no evidence against their paths:
// one of the two processes did not run while they were tried, or lacked something.
// It is empty when neither is known.
func (c *Conn) Slowness() string {
	s := c.first
	prompt := c.env.Scaled(c.env.ProofWait) / 4
	peer := c.Session.Name()
	for _, l := range s.own {
		if isNodeFault(l.Why()) {
			return l.Why().Error()
		}
	}
	switch {
	case s.clock.Lost() > prompt:
		return fmt.Sprintf("this process on %s did not run for %v: it was stopped, or the processors are overloaded", c.Session.LocalName(), s.clock.Lost().Round(time.Millisecond))
	case s.late > prompt:
		return fmt.Sprintf("the process on %s did not answer for %v: it is slow or stopped, or its processors are overloaded", peer, s.late.Round(time.Millisecond))
	case s.mute:
		return fmt.Sprintf("%s is up, but the process on it makes no progress: it is slow or stopped", peer)
	}
	return ""
}
