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

// validation finds out which lanes of a set-up work.
//
// A lane is validated when this side's validation packet has been acknowledged and the peer's has arrived. It
// has failed when its carrier has failed, here or, as a LaneDown reports, at the peer. Adapters and kernels
// acknowledge packets even while a process does not run, so that a missing acknowledgement means a dead path.
// A packet that the peer's process has not sent yet only means that the process is slow, and is waited for.
//
// The sender ends the validation:
//
//   - when every lane is validated or has failed,
//   - ProofWait after the first lane was validated, and later by the time for which the peer's process has
//     not answered on the session, because the process may have been stopped between two packets,
//   - LaneWait after the start if no lane was validated; ProofWait if the lanes join others.
//
// It sends Validated to the receiver. The receiver has no time limit before that, and then the same limit for
// the lanes that Validated names. Only time in which this process ran counts; see package clock. If no lane of a
// probe was validated, and one of the processes did not run for a while or lacked a resource, the lanes may
// have failed for that reason, and the caller repeats the probe until LaneWait has passed; see Slowness.
type validation struct {
	s              *setup
	pending        uint32 // lanes that are neither validated nor failed
	validated      uint32
	acknowledged   uint32               // lanes whose packet the peer's adapter or kernel has acknowledged
	peerResult     *handshake.Validated // receiver: the sender's result; nil until it arrives
	started        time.Duration        // on the set-up's clock, as are the fields below
	firstValidated time.Duration        // when the first lane was validated
	peerResultAt   time.Duration        // when peerResult arrived
}

// validate sends validation packets over the lanes in mask and returns a mask of those that were validated.
// At the receiver it also returns the sender's result.
func (s *setup) validate(ctx context.Context, mask uint32) (uint32, *handshake.Validated, error) {
	v := &validation{s: s, pending: mask}
	s.clock.Start()
	v.started, s.livenessProbed = s.clock.Ran(), false
	v.sendProbes()
	timer := s.c.env.Clock.NewTimer(0)
	defer timer.Stop()
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, v.maxSleep()) {
		v.checkLanes()
		if err := s.c.Ended(); err != nil {
			return 0, nil, err
		}
		if v.isOver() {
			v.failPending()
			return v.validated, v.peerResult, nil
		}
		timer.Reset(wait)
		select {
		case m := <-s.inbox:
			if err := v.handle(m); err != nil {
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

// maxSleep returns how long to sleep at most between two checks of the lanes.
func (v *validation) maxSleep() time.Duration {
	switch {
	case v.pending == 0:
		return clock.LookEvery
	case v.s.clock.Ran()-v.started < v.s.c.env.Clock.Scaled(v.s.c.env.ProofWait):
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// sendProbes sends this side's validation packets.
func (v *validation) sendProbes() {
	v.s.c.mu.Lock()
	defer v.s.c.mu.Unlock()
	for _, l := range v.s.lanes {
		if v.pending&(1<<l.Index) != 0 {
			if err := v.s.c.guarded("send a validation packet", l.Carrier.PostProbe); err != nil {
				v.markFailed(l, err)
			}
		}
	}
}

// checkLanes notes which pending lanes are validated or have failed.
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
		var acknowledged, arrived bool
		err := s.c.guarded("check the validation of a lane", func() (err error) { acknowledged, arrived, err = l.Carrier.Probed(); return err })
		if err == nil {
			err = l.Failure()
		}
		if acknowledged {
			v.acknowledged |= bit
		}
		switch {
		case err != nil:
			v.markFailed(l, err)
		case acknowledged && arrived:
			if v.validated == 0 {
				v.firstValidated = now
			}
			v.validated |= bit
			v.pending &^= bit
		}
	}
}

// markFailed marks a lane as failed by an error of this side, and tells the peer.
//
// Preconditions: the connection is locked.
func (v *validation) markFailed(l *lane.Lane, err error) {
	l.Fail(err)
	v.pending &^= 1 << l.Index
	v.s.c.sendLaneDown(l)
}

// handle handles a message of the peer.
func (v *validation) handle(m handshake.Message) error {
	s := v.s
	switch m := m.(type) {
	case *handshake.LaneDown:
		s.laneFailed(m.Lane, handshake.CausePath, m.Reason)
		v.pending &^= 1 << m.Lane
		v.validated &^= 1 << m.Lane
		return nil
	case *handshake.Validated:
		if !s.c.Sending {
			v.peerResult, v.peerResultAt = m, s.clock.Ran()
			s.c.mu.Lock()
			v.recordLocalErrors(^m.Lanes)
			s.c.mu.Unlock()
			v.pending &= m.Lanes
			return nil
		}
	}
	return s.c.unexpectedMessage(m, handshake.TypeValidated)
}

// isOver reports whether the validation waits for nothing more.
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

// failPending marks the lanes that are still pending as failed.
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

// recordLocalErrors marks the given lanes as failed for lack of a resource on this node, if their carriers
// report such an error.
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

// laneFailed records why a lane has failed at the peer. A lack of a resource at the peer replaces the reason
// that this side has seen, because it is the cause.
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

// isNodeFault reports whether a lane failed because a node lacked a resource.
func isNodeFault(err error) bool {
	var f *lane.NodeFault
	return errors.As(err, &f)
}

// overdue reports whether missing lanes have had their time, which began at since on the set-up's clock:
// ProofWait, plus the longest time for which the peer's process has not answered, LaneWait at most. After a
// quarter of ProofWait it makes the session ask the peer for an answer, once, because the silence of an idle
// peer cannot be told from that of a stopped one.
func (s *setup) overdue(since time.Duration) bool {
	wait, ran := s.c.env.Clock.Scaled(s.c.env.ProofWait), s.clock.Ran()-since
	if ran >= wait/4 && !s.livenessProbed {
		s.livenessProbed = true
		s.c.Session.Silence()
	}
	return ran >= wait+min(s.longestSilence, s.c.env.Clock.Scaled(s.c.env.LaneWait))
}

// checkClock returns how long this process has run since the clock was started, and notes for how long the
// peer has not answered on the session.
func (s *setup) checkClock() time.Duration {
	s.longestSilence = max(s.longestSilence, s.c.Session.Unanswered())
	return s.clock.Look()
}

// Slowness says why lanes may have failed although their paths work: one of the two processes did not run
// during the set-up, or lacked a resource. It returns "" if no such reason is known.
func (c *Conn) Slowness() string {
	s := c.firstSetup
	prompt := c.env.Clock.Scaled(c.env.ProofWait) / 4
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
