package transport

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

const (
	// maxTrials at a time are answered for a peer, and maxQueued wait: this
	// package opens two at most for each time that it looks for paths.
	maxTrials = 4
	maxQueued = 16

	trialPause = 100 * time.Millisecond // between two rounds
)

// trial is a connection that carries nothing but its proofs, over all lanes of a
// plan at once.
type trial struct {
	mask  uint32   // lanes that passed
	tried []string // why the others did not
	slow  string   // why that may be no evidence; see slowness
	err   error
}

// trial tries the lanes of a plan, again while none passes and one of the two
// processes is slow.
func (t *Transport) trial(s *control.Session, plan []plannedLane) (r trial) {
	for spent := time.Duration(0); ; {
		var ran time.Duration
		r, ran = t.round(s, plan)
		spent += ran + t.opts.scaled(trialPause)
		if r.err != nil || r.mask != 0 || r.slow == "" || spent >= t.opts.scaled(t.opts.LaneWait) {
			return r
		}
		t.log.Debug("a trial is repeated", "peer", s.Name(), "because", r.slow, "tried", r.tried)
		pause := time.NewTimer(t.opts.scaled(trialPause))
		select {
		case <-pause.C:
		case <-t.closing: // the next round fails
			pause.Stop()
		}
	}
}

// round tries the lanes of a plan once. It returns how long this process ran.
func (t *Transport) round(s *control.Session, plan []plannedLane) (r trial, ran time.Duration) {
	c := newConn(t, s, t.lastID.Add(1), true)
	c.trial = true
	c.half = idle{}
	if err := t.add(c); err != nil {
		return trial{err: err}, 0
	}
	defer func() { r.err = errors.Join(r.err, t.making.do(c.destroy)) }()
	r.mask, r.err = c.establish(t.ctx, plan, &handshake.Open{Conn: c.id})
	if r.err != nil && !errors.Is(r.err, errNoLane) {
		c.fail(r.err)
		return trial{err: r.err}, c.clock.ran
	}
	r.err = nil
	_ = s.Send(&handshake.Bye{Conn: c.id}) // a dead session needs none
	for _, l := range c.lanes {
		if r.mask&(1<<l.index) == 0 {
			r.tried = append(r.tried, c.describeTried(l))
		}
	}
	if r.mask == 0 {
		r.slow = c.slowness()
	}
	return r, c.clock.ran
}

// answers are the trials of a peer that this side answers.
type answers struct {
	running int
	waiting []waitingTrial
}

type waitingTrial struct {
	s *control.Session
	m *handshake.Open
}

// answerTrial is the other side of trial, now or, when the peer has too many,
// later or not at all. It does not block.
func (t *Transport) answerTrial(s *control.Session, m *handshake.Open) {
	key := s.Peer().Process
	t.mu.Lock()
	a := t.answers[key]
	if a == nil {
		a = &answers{}
		t.answers[key] = a
	}
	begin := a.running < maxTrials
	refused := !begin && len(a.waiting) >= maxQueued
	switch {
	case begin:
		a.running++
	case !refused:
		a.waiting = append(a.waiting, waitingTrial{s, m})
	}
	t.mu.Unlock()
	switch {
	case begin:
		t.background(func() { t.answerTrials(key, a, waitingTrial{s, m}) })
	case refused:
		text := fmt.Sprintf("%d trials of %s are being answered and %d wait: it opens too many", maxTrials, s.Name(), maxQueued)
		t.log.Debug("a trial was refused", "why", text)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: text}) // a dead session needs none
	}
}

// withdrawTrial forgets a trial that waits: the peer has ended it.
func (t *Transport) withdrawTrial(s *control.Session, id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.answers[s.Peer().Process]; a != nil {
		a.waiting = slices.DeleteFunc(a.waiting, func(w waitingTrial) bool { return w.s == s && w.m.Conn == id })
	}
}

// answerTrials answers a trial, and then those that wait.
func (t *Transport) answerTrials(key handshake.ProcessID, a *answers, next waitingTrial) {
	for {
		_ = t.guarded("answer a trial", func() error { t.answerOne(next.s, next.m); return nil }) // it has been logged
		t.mu.Lock()
		if len(a.waiting) == 0 {
			if a.running--; a.running == 0 {
				delete(t.answers, key)
			}
			t.mu.Unlock()
			return
		}
		next, a.waiting = a.waiting[0], a.waiting[1:]
		t.mu.Unlock()
	}
}

// answerOne answers one trial.
func (t *Transport) answerOne(s *control.Session, m *handshake.Open) {
	c := newConn(t, s, m.Conn, false)
	c.trial = true
	c.half = idle{}
	if err := t.add(c); err != nil {
		t.log.Debug("a trial was refused", "err", err)
		return
	}
	err := t.guarded(c.String(), func() error { _, err := c.answer(t.ctx, m); return err })
	if err != nil && !errors.Is(err, errNoLane) {
		c.fail(err)
		t.log.Debug("a trial failed", "err", err)
	}
	if err := t.making.do(c.destroy); err != nil {
		t.log.Warn("closing a trial left something behind", "err", err)
	}
}

// idle is the half of a trial's connection: it has no requests.
type idle struct{}

func (idle) delivered(*lane, int)                  {}
func (idle) received(*lane, uint32, int64)         {}
func (idle) failed(*lane, int, error)              {}
func (idle) waiting() bool                         { return false }
func (idle) recycle(*Request)                      {}
func (idle) abandon()                              {}
func (idle) counters() (bytes, msgs, waits uint64) { return 0, 0, 0 }
