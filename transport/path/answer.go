package path

import (
	"errors"
	"fmt"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/bundle"
	"ncclmesh/transport/control"
)

// maxTrials at a time are answered for a peer, and maxQueued wait: this package opens
// two at most for each time that it looks for paths.
const (
	maxTrials = 4
	maxQueued = 16
)

// answers are the trials of a peer that this side answers.
type answers struct {
	running int
	waiting []waitingTrial
}

type waitingTrial struct {
	s *control.Session
	m *handshake.Open
}

// Answer is the other side of a trial, now or, when the peer has too many,
// later or not at all. It does not block.
func (f *Finder) Answer(s *control.Session, m *handshake.Open) {
	key := s.Peer().Process
	f.mu.Lock()
	a := f.answers[key]
	if a == nil {
		a = &answers{}
		f.answers[key] = a
	}
	begin := a.running < maxTrials
	refused := !begin && len(a.waiting) >= maxQueued
	switch {
	case begin:
		a.running++
	case !refused:
		a.waiting = append(a.waiting, waitingTrial{s, m})
	}
	f.mu.Unlock()
	switch {
	case begin:
		f.Env.Background(func() { f.answerTrials(key, a, waitingTrial{s, m}) })
	case refused:
		text := fmt.Sprintf("%d trials of %s are being answered and %d wait: it opens too many", maxTrials, s.Name(), maxQueued)
		f.Env.Log.Debug("a trial was refused", "why", text)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: text}) // a dead session needs none
	}
}

// Withdraw forgets a trial that waits: the peer has ended it.
func (f *Finder) Withdraw(s *control.Session, id uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.answers[s.Peer().Process]; a != nil {
		a.waiting = slices.DeleteFunc(a.waiting, func(w waitingTrial) bool { return w.s == s && w.m.Conn == id })
	}
}

// answerTrials answers a trial, and then those that wait.
func (f *Finder) answerTrials(key handshake.ProcessID, a *answers, next waitingTrial) {
	for {
		_ = f.guarded("answer a trial", func() error { f.answerOne(next.s, next.m); return nil }) // it has been logged
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
func (f *Finder) answerOne(s *control.Session, m *handshake.Open) {
	b := bundle.New(f.Env, s, m.Conn, false, nil)
	if err := f.Add(b); err != nil {
		f.Env.Log.Debug("a trial was refused", "err", err)
		return
	}
	err := f.guarded(b.String(), func() error {
		plan, err := f.PlanFor(b, m.Lanes)
		if err == nil {
			_, err = b.Answer(f.Env.Context, plan, m)
		}
		return err
	})
	if err != nil && !errors.Is(err, bundle.ErrNoLane) {
		b.Fail(err)
		f.Env.Log.Debug("a trial failed", "err", err)
	}
	if err := b.Discard(); err != nil {
		f.Env.Log.Warn("closing a trial left something behind", "err", err)
	}
}
