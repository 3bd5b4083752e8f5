package path

import (
	"errors"
	"fmt"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
)

// maxTrials at a time are answered for a peer, and maxQueued wait: this package opens
// two at most for each time that it looks for paths.
const (
	maxProbes = 4
	maxQueued = 16
)

// answers are the trials of a peer that this side answers.
type answers struct {
	running int
	waiting []waitingProbe
}

type waitingProbe struct {
	b *conn.Conn // without lanes yet
	m *handshake.Open
}

// Answer is the other side of a trial, now or, when the peer has too many,
// later or not at all. It does not block. It runs on the session's goroutine: what the
// peer says next of the trial, as that it is over, reaches it from here on.
func (f *Finder) Answer(s *control.Session, m *handshake.Open) {
	trial := waitingProbe{conn.NewProbe(f.Env, s, m.Conn, false), m}
	if err := f.Add(trial.b); err != nil {
		f.Env.Log.Debug("a path validation was refused", "err", err)
		return
	}
	key := s.Peer().Process
	f.mu.Lock()
	a := f.answers[key]
	if a == nil {
		a = &answers{}
		f.answers[key] = a
	}
	over := a.dropEnded()
	begin := a.running < maxProbes
	refused := !begin && len(a.waiting) >= maxQueued
	switch {
	case begin:
		a.running++
	case !refused:
		a.waiting = append(a.waiting, trial)
	}
	f.mu.Unlock()
	for _, c := range over {
		f.Env.Forget(c)
	}
	switch {
	case begin:
		f.Env.Background(func() { f.answerProbes(key, a, trial) })
	case refused:
		f.Env.Forget(trial.b)
		text := fmt.Sprintf("%d path validations of %s are being answered and %d wait: it opens too many", maxProbes, s.Name(), maxQueued)
		f.Env.Log.Debug("a path validation was refused", "why", text)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: text}) // a dead session needs none
	}
}

// dropEnded takes out the trials that wait although the peer has ended them.
func (a *answers) dropEnded() (over []*conn.Conn) {
	a.waiting = slices.DeleteFunc(a.waiting, func(w waitingProbe) bool {
		ended := w.b.Ended() != nil
		if ended {
			over = append(over, w.b)
		}
		return ended
	})
	return over
}

// answerTrials answers a trial, and then those that wait.
func (f *Finder) answerProbes(key handshake.ProcessID, a *answers, next waitingProbe) {
	for {
		_ = f.guarded("answer a path validation", func() error { f.answerOne(next.b, next.m); return nil }) // it has been logged
		f.mu.Lock()
		if len(a.waiting) == 0 {
			if a.running--; a.running == 0 {
				delete(f.answers, key)
			}
			f.mu.Unlock()
			return
		}
		next, a.waiting = a.waiting[0], a.waiting[1:]
		f.mu.Unlock()
	}
}

// answerOne answers one trial.
func (f *Finder) answerOne(c *conn.Conn, m *handshake.Open) {
	err := f.guarded(c.String(), func() error {
		if err := c.Ended(); err != nil { // while it waited
			return err
		}
		plan, err := f.PlanFor(c, m.Lanes)
		if err == nil {
			_, err = c.Answer(f.Env.Context, plan, m)
		}
		return err
	})
	if err != nil && !errors.Is(err, conn.ErrNoLane) {
		c.Fail(err)
		f.Env.Log.Debug("a path validation failed", "err", err)
	}
	if err := c.Discard(); err != nil {
		f.Env.Log.Warn("closing a path validation left something behind", "err", err)
	}
}
