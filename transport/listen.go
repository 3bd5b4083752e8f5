package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

// maxWaiting is how many connections of a listener may be set up, or wait for
// Accept, at a time.
const maxWaiting = 1024

// Listener waits for connections of the peers that have its handle.
type Listener struct {
	t      *Transport
	l      *control.Listen
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	setups int         // connections being set up
	up     []*RecvConn // not yet accepted, in their order
	failed []error     // of connections that did not come up, not yet told; at most maxWaiting of all three
	closed bool
}

// Listen makes a handle that peers can dial.
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

// Handle is what NCCL carries to the peers.
func (l *Listener) Handle() [handshake.HandleSize]byte { return l.l.Handle() }

// Accept returns the connection that has waited longest. Nil means not yet. While
// there is none it returns, once each, the errors of those that did not come up:
// a peer that fails, or ends before it has asked for its connection, costs one
// Accept.
func (l *Listener) Accept() (*RecvConn, error) {
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

// Close ends the listener. Connections that were set up and not accepted are
// closed; accepted ones are not touched.
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

// opened handles a peer's request for a connection, or, without a listen, for a
// trial of paths.
func (t *Transport) opened(s *control.Session, m *handshake.Open) {
	if m.Listen == 0 {
		t.answerTrial(s, m)
		return
	}
	if err := t.open(s, m); err != nil {
		t.log.Warn("a connection was refused", "peer", s.Name(), "err", err)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: clip(err.Error(), 500)}) // a dead session needs none
	}
}

// open begins to set up what a peer has asked for. An error is of no concern to
// whoever accepts.
func (t *Transport) open(s *control.Session, m *handshake.Open) error {
	if err := t.ep.Redeem(m.Listen, s, m.Conn, m.Proof); err != nil {
		return err
	}
	t.mu.Lock()
	l := t.listeners[m.Listen]
	t.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%w: the listener was closed", ErrUsage)
	}
	if err := l.begin(); err != nil {
		return err
	}
	c := newConn(t, s, m.Conn, false)
	r := newRecvConn(c)
	if err := t.add(c); err != nil {
		l.finish(nil, err)
		return err
	}
	t.background(func() {
		if err := t.guarded(c.String(), func() error { return r.setUp(l.ctx, m) }); err != nil {
			l.finish(nil, c.abort(err))
			return
		}
		l.finish(r, nil)
	})
	return nil
}

// begin takes a place among those that wait.
func (l *Listener) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.setups + len(l.up) + len(l.failed); n >= maxWaiting {
		return fmt.Errorf("%d connections wait to be accepted, and no more may", n)
	}
	l.setups++
	return nil
}

// finish hands the outcome of a set-up to Accept.
func (l *Listener) finish(r *RecvConn, err error) {
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
		_ = r.Close() // nobody is left to hear of it
	}
}

// orphan tells Accept of a peer that held the handle, and is gone before it has
// asked for its connection.
func (l *Listener) orphan(err error) {
	if l.begin() == nil {
		l.finish(nil, err)
	}
}

// setUp sets the connection up from the receiver's side.
func (r *RecvConn) setUp(ctx context.Context, m *handshake.Open) error {
	mask, err := r.answer(ctx, m)
	if errors.Is(err, errNoLane) {
		return r.noLane()
	}
	if err == nil {
		r.announce(mask)
	}
	return err
}

// planFor finds this side's half of each lane that the sender offers.
func (c *conn) planFor(offered []handshake.Lane) ([]plannedLane, error) {
	if len(offered) == 0 || len(offered) > maxParts {
		return nil, fmt.Errorf("%w: %v: peer offers %d lanes; 1 to %d can be", ErrProtocol, c, len(offered), maxParts)
	}
	var plan []plannedLane
	for i, o := range offered {
		if int(o.Index) != i || int(o.PeerPort) >= len(c.t.ports) {
			return nil, fmt.Errorf("%w: %v: peer offers lane %d to our port %d as its number %d", ErrProtocol, c, o.Index, o.PeerPort, i)
		}
		p := c.t.ports[o.PeerPort]
		if o.Kind != p.carries() || o.Kind != offered[0].Kind {
			return nil, fmt.Errorf("%w: %v: peer offers lane %d of kind %d to our %s; lane 0 is of kind %d", ErrProtocol, c, i, o.Kind, p.String(), offered[0].Kind)
		}
		peer, addr, ok := portOf(c.t.portsOf(c.s), o)
		if !ok {
			return nil, fmt.Errorf("%w: %v: peer offers a lane from %s of its port %d, which it has not told us of", ErrProtocol, c, addrOf(o.GID), o.Port)
		}
		now := p.now()
		gid, ok := now.Answer(addr, c.t.opts.GIDs)
		if !ok {
			return nil, fmt.Errorf("%w: %v: %s has no address that fits %s of the peer's %s", ErrUnreachable, c, p.String(), addrOf(o.GID), shortName(peer))
		}
		plan = append(plan, plannedLane{port: p, gid: now.GIDs[gid], peer: peer, to: o.GID})
	}
	return plan, nil
}

// portOf finds the port and the address of the peer that a lane begins at.
func portOf(ports []handshake.Port, o handshake.Lane) (handshake.Port, handshake.PortAddr, bool) {
	for _, p := range ports {
		if p.Index != o.Port {
			continue
		}
		for _, a := range p.Addrs {
			if a.GID == o.GID && a.GIDIndex == o.GIDIndex {
				return p, a, true
			}
		}
	}
	return handshake.Port{}, handshake.PortAddr{}, false
}
