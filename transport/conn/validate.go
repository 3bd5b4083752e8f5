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
	s              *setup
	pending        uint32
	validated      uint32
	acknowledged   uint32            // lanes whose proof has been acknowledged
	peerResult     *handshake.Proved // the sender's last word
	started        time.Duration     // on the connection's clock
	firstValidated time.Duration     // when the first lane was proved
	peerResultAt   time.Duration     // when the sender's word came
}

// validate sends this side's proof over the lanes in mask and waits for the outcome.
// At the receiver it returns what the sender says, too.
func (s *setup) validate(ctx context.Context, mask uint32) (uint32, *handshake.Proved, error) {
	p := &validation{s: s, pending: mask}
	s.clock.Start()
	p.started, s.livenessProbed = s.clock.Ran(), false
	p.sendProbes()
	timer := s.c.env.Clock.NewTimer(0)
	defer timer.Stop()
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, p.maxSleep()) {
		p.checkLanes()
		if err := s.c.Ended(); err != nil {
			return 0, nil, err
		}
		if p.isOver() {
			p.failPending()
			return p.validated, p.peerResult, nil
		}
		timer.Reset(wait)
		select {
		case m := <-s.inbox:
			if err := p.handle(m); err != nil {
				return 0, nil, err
			}
			wait = 20 * time.Microsecond
		case <-timer.C:
		case <-s.c.peerDone:
		case <-ctx.Done():
			return 0, nil, s.c.abandoned()
		}
	}
}

// rest is how long to sleep at most between two looks.
func (v *validation) maxSleep() time.Duration {
	switch {
	case v.pending == 0:
		return clock.LookEvery
	case v.s.clock.Ran()-v.started < v.s.c.env.Scaled(v.s.c.env.ProofWait):
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// post sends this side's proofs.
func (v *validation) sendProbes() {
	v.s.c.mu.Lock()
	defer v.s.c.mu.Unlock()
	for _, l := range v.s.lanes {
		if v.pending&(1<<l.Index) != 0 {
			if err := v.s.c.guarded("proof", l.Carrier.PostProbe); err != nil {
				v.markFailed(l, err)
			}
		}
	}
}

// look notes what has become of the pending lanes.
func (v *validation) checkLanes() {
	s := v.s
	now := s.checkClock()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.lanes {
		bit := uint32(1) << l.Index
		if v.pending&bit == 0 {
			continue
		}
		var sent, came bool
		err := s.c.guarded("proof", func() (err error) { sent, came, err = l.Carrier.Probed(); return err })
		if err == nil {
			err = l.Failure()
		}
		if sent {
			v.acknowledged |= bit
		}
		switch {
		case err != nil:
			v.markFailed(l, err)
		case sent && came:
			if v.validated == 0 {
				v.firstValidated = now
			}
			v.validated |= bit
			v.pending &^= bit
		}
	}
}

// down gives a lane up on this side's evidence.
//
// Preconditions: the connection is locked.
func (v *validation) markFailed(l *lane.Lane, err error) {
	l.Fail(err)
	v.pending &^= 1 << l.Index
	v.s.c.sendLaneDown(l)
}

// handle takes a message of the peer's.
func (v *validation) handle(m handshake.Message) error {
	s := v.s
	switch m := m.(type) {
	case *handshake.LaneDown:
		s.laneFailed(m.Lane, handshake.CausePath, m.Reason)
		v.pending &^= 1 << m.Lane
		v.validated &^= 1 << m.Lane
		return nil
	case *handshake.Proved:
		if !s.c.Sending {
			v.peerResult, v.peerResultAt = m, s.clock.Ran()
			s.c.mu.Lock()
			v.recordLocalErrors(^m.Lanes)
			s.c.mu.Unlock()
			v.pending &= m.Lanes
			return nil
		}
	}
	return s.c.unexpectedMessage(m, handshake.TypeProved)
}

// over reports whether nothing more is waited for.
func (v *validation) isOver() bool {
	switch {
	case !v.s.c.Sending:
		return v.peerResult != nil && (v.pending == 0 || v.s.overdue(v.peerResultAt))
	case v.pending == 0:
		return true
	case v.validated != 0:
		return v.s.overdue(v.firstValidated)
	}
	return v.s.clock.Ran()-v.started >= v.s.firstLaneTimeout()
}

// giveUp says of the lanes still pending what is known.
func (v *validation) failPending() {
	s := v.s
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.lanes {
		bit := uint32(1) << l.Index
		if v.pending&bit == 0 {
			continue
		}
		wait := (s.clock.Ran() - v.started).Round(time.Millisecond)
		why := fmt.Errorf("no packet passed within %v", wait)
		if v.acknowledged&bit != 0 {
			why = fmt.Errorf("a packet arrived there and none came back within %v", wait)
			s.onlyKernelAnswered = true
		}
		l.Fail(why)
	}
	v.recordLocalErrors(v.pending)
}

// recordLocalErrors says of lanes that have not come what this side lacked for them.
//
// Preconditions: the connection is locked.
func (v *validation) recordLocalErrors(lanes uint32) {
	for _, l := range v.s.lanes {
		if lanes&(1<<l.Index) == 0 {
			continue
		}
		if err := l.Carrier.LocalError(); err != nil {
			l.Fail(&lane.NodeFault{Node: v.s.c.Session.LocalName(), Err: err})
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
	if ran >= wait/4 && !s.livenessProbed {
		s.livenessProbed = true
		s.c.Session.Silence()
	}
	return ran >= wait+min(s.longestSilence, s.c.env.Scaled(s.c.env.LaneWait))
}

// look looks at the clock of a set-up, and whether the peer answers on the session.
func (s *setup) checkClock() time.Duration {
	s.longestSilence = max(s.longestSilence, s.c.Session.Unanswered())
	return s.clock.Look()
}

// Slowness says why the failure of lanes may be no evidence against their paths:
// one of the two processes did not run while they were tried, or lacked something.
// It is empty when neither is known.
func (c *Conn) Slowness() string {
	s := c.firstSetup
	prompt := c.env.Scaled(c.env.ProofWait) / 4
	peer := c.Session.Name()
	for _, l := range s.lanes {
		if isNodeFault(l.Why()) {
			return l.Why().Error()
		}
	}
	switch {
	case s.clock.Lost() > prompt:
		return fmt.Sprintf("this process on %s did not run for %v: it was stopped, or the processors are overloaded", c.Session.LocalName(), s.clock.Lost().Round(time.Millisecond))
	case s.longestSilence > prompt:
		return fmt.Sprintf("the process on %s did not answer for %v: it is slow or stopped, or its processors are overloaded", peer, s.longestSilence.Round(time.Millisecond))
	case s.onlyKernelAnswered:
		return fmt.Sprintf("%s is up, but the process on it makes no progress: it is slow or stopped", peer)
	}
	return ""
}
