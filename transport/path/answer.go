package path

import (
	"errors"
	"fmt"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
)

// This side answers at most maxProbes probe connections of a peer at a time, and queues at most maxQueued. A Finder
// opens at most two for each search for paths.
const (
	maxProbes = 4
	maxQueued = 16
)

// answers holds the probe connections of one peer that this side answers.
type answers struct {
	running int
	waiting []waitingProbe
}

type waitingProbe struct {
	b *conn.Conn // without lanes
	m *handshake.Open
}

// Answer starts the answer to a peer's probe connection. If maxProbes are being answered it queues the answer,
// and if the queue is full it refuses the connection. It does not block. It runs on the session's goroutine, so
// that later messages about the connection, such as its end, find it.
func (f *Finder) Answer(s *control.Session, m *handshake.Open) {
	pending := waitingProbe{conn.NewProbe(f.Env, s, m.Conn, false), m}
	if err := f.Add(pending.b); err != nil {
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
		a.waiting = append(a.waiting, pending)
	}
	f.mu.Unlock()
	for _, c := range over {
		f.Env.Forget(c)
	}
	switch {
	case begin:
		f.Env.Background(func() { f.answerProbes(key, a, pending) })
	case refused:
		f.Env.Forget(pending.b)
		text := fmt.Sprintf("%d path validations of %s are being answered and %d wait: it opens too many", maxProbes, s.Name(), maxQueued)
		f.Env.Log.Debug("a path validation was refused", "why", text)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: text}) // ignore the error: a session that has ended needs no answer
	}
}

// dropEnded removes queued probe connections that the peer has ended, and returns them.
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

// answerProbes answers a probe connection, and then the queued ones.
func (f *Finder) answerProbes(key handshake.ProcessID, a *answers, next waitingProbe) {
	for {
		_ = f.guarded("answer a path validation", func() error { f.answerOne(next.b, next.m); return nil }) // the error has been logged
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

// answerOne answers one probe connection.
func (f *Finder) answerOne(c *conn.Conn, m *handshake.Open) {
	err := f.guarded(c.String(), func() error {
		if err := c.Ended(); err != nil { // it may have ended while it was queued
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
