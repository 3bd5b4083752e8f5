package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ncclmesh/handshake"
	"ncclmesh/printable"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
)

// maxWaiting is how many connections of a listener may be in set-up or wait for Accept.
const maxWaiting = 1024

// Listener accepts connections of peers that have its handle.
type Listener struct {
	t      *Transport
	l      *control.Listen
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	setups int              // connections in set-up
	up     []*conn.Receiver // connections that wait for Accept, oldest first
	failed []error          // errors of failed set-ups that Accept has not returned yet; setups, up and failed together are at most maxWaiting
	closed bool
}

// Listen makes a listener with a handle that peers can dial.
func (t *Transport) Listen() (*Listener, error) {
	cl, err := t.ep.Listen()
	if err != nil {
		return nil, err
	}
	l := &Listener{t: t, l: cl}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	t.mu.Lock()
	t.listeners[cl.ID] = l
	t.mu.Unlock()
	return l, nil
}

// Handle returns the bytes that NCCL passes to the peers.
func (l *Listener) Handle() [handshake.HandleSize]byte { return l.l.Handle() }

// Accept returns the connection that has waited longest. Nil without an error means not yet. If none waits, it returns
// the errors of failed set-ups, each once. A peer that fails, or ends before it has requested its connection, causes
// one such error.
func (l *Listener) Accept() (*conn.Receiver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.up) > 0:
		c := l.up[0]
		l.up = slices.Delete(l.up, 0, 1)
		return c, nil
	case len(l.failed) > 0:
		err := l.failed[0]
		l.failed = slices.Delete(l.failed, 0, 1)
		return nil, err
	}
	return nil, nil
}

// Close closes the listener and the connections that wait for Accept. Accepted connections stay open.
func (l *Listener) Close() error {
	l.cancel()
	l.t.mu.Lock()
	delete(l.t.listeners, l.l.ID)
	l.t.mu.Unlock()
	l.l.Close()
	l.mu.Lock()
	up := l.up
	l.up, l.failed, l.closed = nil, nil, true
	l.mu.Unlock()
	var errs []error
	for _, c := range up {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// opened handles a peer's Open message: a request for a connection or, if Listen is 0, for a probe of paths.
func (t *Transport) opened(s *control.Session, m *handshake.Open) {
	if s.Neighbour() { // a neighbour may request only the map and circuits
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: "a neighbour's session has no connections"}) // the error means that the session has ended
		return
	}
	if m.Listen == 0 {
		t.paths.Answer(s, m)
		return
	}
	if err := t.open(s, m); err != nil {
		t.log.Warn("a connection was refused", "peer", s.Name(), "err", err)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: printable.Line(err.Error(), 500)}) // the error means that the session has ended
	}
}

// open starts the set-up of the connection that a peer requested. An error refuses the request; Accept does not return
// it.
func (t *Transport) open(s *control.Session, m *handshake.Open) error {
	if err := t.ep.Redeem(m.Listen, s, m.Conn, m.Proof); err != nil {
		return err
	}
	t.mu.Lock()
	l := t.listeners[m.Listen]
	t.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%w: the listener was closed", fault.ErrUsage)
	}
	if err := l.begin(); err != nil {
		return err
	}
	r := conn.NewReceiver(&t.env, s, m.Conn)
	c := &r.Conn
	if err := t.add(c); err != nil {
		l.finish(nil, err)
		return err
	}
	t.background(func() {
		if err := t.guarded(c.String(), func() error { return t.answer(l.ctx, c, m) }); err != nil {
			l.finish(nil, c.Abort(err))
			return
		}
		l.finish(r, nil)
	})
	return nil
}

// begin reserves a place among the waiting connections. It fails if maxWaiting are taken.
func (l *Listener) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.setups + len(l.up) + len(l.failed); n >= maxWaiting {
		return fmt.Errorf("%d connections already wait to be accepted", n)
	}
	l.setups++
	return nil
}

// finish passes the result of a set-up to Accept.
func (l *Listener) finish(r *conn.Receiver, err error) {
	l.mu.Lock()
	l.setups--
	closed := l.closed
	switch {
	case closed:
	case err != nil:
		l.failed = append(l.failed, err)
	default:
		l.up = append(l.up, r)
	}
	l.mu.Unlock()
	if closed && r != nil {
		_ = r.Close() // no caller is left to return the error to
	}
}

// peerLost makes Accept return the error of a peer that had the handle and ended before it requested its connection.
func (l *Listener) peerLost(err error) {
	if l.begin() == nil {
		l.finish(nil, err)
	}
}

// settingsDiffer makes Accept return the error of a peer that has the handle and whose settings are incompatible.
func (t *Transport) settingsDiffer(listen uint32, err error) {
	t.mu.Lock()
	l := t.listeners[listen]
	t.mu.Unlock()
	if l != nil {
		l.peerLost(fmt.Errorf("%w: %w", kindOf(err), err))
	}
}

// answer sets up the lanes that the sender of a connection requested.
func (t *Transport) answer(ctx context.Context, c *conn.Conn, m *handshake.Open) error {
	plan, err := t.paths.PlanFor(c, m.Lanes)
	if err == nil {
		_, err = c.Answer(ctx, plan, m)
	}
	return t.outcome(c, err)
}
