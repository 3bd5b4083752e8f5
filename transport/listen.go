package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

// Listener waits for one connection.
type Listener struct {
	t      *Transport
	l      *control.Listen
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	conn   *RecvConn // up, and not yet accepted
	err    error
	closed bool
}

// Listen makes a handle that one peer can dial.
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

// Handle is what NCCL carries to the peer.
func (l *Listener) Handle() [handshake.HandleSize]byte { return l.l.Handle() }

// Accept returns the connection once a peer has set it up. Nil means not yet.
func (l *Listener) Accept() (*RecvConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn
	l.conn = nil
	return c, l.err
}

// Close ends the listener. A connection that was set up and not accepted is
// closed; an accepted one is not touched.
func (l *Listener) Close() error {
	l.cancel()
	l.t.mu.Lock()
	delete(l.t.listeners, l.l.ID)
	l.t.mu.Unlock()
	l.l.Close()
	l.mu.Lock()
	c := l.conn
	l.conn, l.closed = nil, true
	l.mu.Unlock()
	if c != nil {
		return c.Close()
	}
	return nil
}

// opened handles a peer's request for a connection, or, without a listen, for a
// trial of paths.
func (t *Transport) opened(s *control.Session, m *handshake.Open) {
	if m.Listen == 0 {
		t.answerTrial(s, m)
		return
	}
	refuse := func(err error) {
		t.log.Warn("a connection was refused", "peer", s.Peer().Hostname, "err", err)
		_ = s.Send(&handshake.Refuse{Conn: m.Conn, Text: clip(err.Error(), 500)}) // a dead session needs none
	}
	if _, err := t.ep.Consume(m.Listen, s, m.Conn, m.Proof); err != nil {
		refuse(err)
		return
	}
	t.mu.Lock()
	l := t.listeners[m.Listen]
	t.mu.Unlock()
	if l == nil {
		refuse(fmt.Errorf("%w: the listener was closed", ErrUsage))
		return
	}
	c := newConn(t, s, m.Conn, false)
	r := newRecvConn(c)
	if err := t.add(c); err != nil {
		refuse(err)
		l.finish(nil, err)
		return
	}
	t.background(func() {
		if err := r.setUp(l.ctx, m); err != nil {
			l.finish(nil, c.abort(err))
			return
		}
		l.finish(r, nil)
	})
}

// orphan ends the wait for a connection that the peer, now gone, held the handle
// of and had not asked for.
func (l *Listener) orphan(err error) {
	if l.l.Close() {
		l.finish(nil, err)
	}
}

// finish hands the outcome of a set-up to Accept.
func (l *Listener) finish(r *RecvConn, err error) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.conn, l.err = r, err
	}
	l.mu.Unlock()
	if closed && r != nil {
		_ = r.Close() // nobody is left to hear of it
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
		return nil, fmt.Errorf("%w: %v: peer offers %d lanes; 1 to %d can be", ErrPeer, c, len(offered), maxParts)
	}
	var plan []plannedLane
	for i, o := range offered {
		if int(o.Index) != i || int(o.PeerPort) >= len(c.t.ports) {
			return nil, fmt.Errorf("%w: %v: peer offers lane %d to our port %d as its number %d", ErrPeer, c, o.Index, o.PeerPort, i)
		}
		p := c.t.ports[o.PeerPort]
		if o.Kind != p.carries() || o.Kind != offered[0].Kind {
			return nil, fmt.Errorf("%w: %v: peer offers lane %d of kind %d to our %s; lane 0 is of kind %d", ErrPeer, c, i, o.Kind, p.String(), offered[0].Kind)
		}
		peer, addr, ok := portOf(c.t.portsOf(c.s), o)
		if !ok {
			return nil, fmt.Errorf("%w: %v: peer offers a lane from %s of its port %d, which it has not told us of", ErrPeer, c, addrOf(o.GID), o.Port)
		}
		now := p.now()
		gid, ok := now.Answer(addr, c.t.opts.GIDs)
		if !ok {
			return nil, fmt.Errorf("%w: %v: %s has no address that fits %s of the peer's %s", ErrPeer, c, p.String(), addrOf(o.GID), shortName(peer))
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
