package transport

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"ncclmesh/handshake"
)

// Dialing is a connection being set up by the sender.
type Dialing struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	conn   *SendConn // set once, and taken by Poll
	err    error
	closed bool
}

// Dial starts to connect to the listener that h describes.
func (t *Transport) Dial(h handshake.Handle) *Dialing {
	ctx, cancel := context.WithCancel(t.ctx)
	d := &Dialing{cancel: cancel}
	t.background(func() {
		defer cancel()
		var s *SendConn
		err := t.guarded("connect", func() (err error) {
			s, err = t.connect(ctx, h)
			return err
		})
		d.mu.Lock()
		abandoned := d.closed || ctx.Err() != nil // Close of either
		if !abandoned {
			d.conn, d.err = s, err
		}
		d.mu.Unlock()
		if abandoned && s != nil {
			_ = s.Close() // nobody is left to hear of it
		}
	})
	return d
}

// Poll returns the connection once it is up. Nil means not yet.
func (d *Dialing) Poll() (*SendConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.conn
	d.conn = nil
	return s, d.err
}

// Close gives the set-up up. A connection that Poll has returned is not touched.
func (d *Dialing) Close() error {
	d.cancel()
	d.mu.Lock()
	s := d.conn
	d.conn, d.closed = nil, true
	d.mu.Unlock()
	if s != nil {
		return s.Close()
	}
	return nil
}

// connect sets a connection up from the sender's side.
func (t *Transport) connect(ctx context.Context, h handshake.Handle) (*SendConn, error) {
	sess, err := t.ep.Dial(ctx, h)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: given up: %w", ErrUsage, err)
		}
		return nil, fmt.Errorf("%w: %w", kindOf(err), err)
	}
	c := newConn(t, sess, t.lastID.Add(1), true)
	s := newSendConn(c)
	if err := t.add(c); err != nil {
		return nil, err
	}
	if err := t.guarded(c.String(), func() error { return s.setUp(ctx, h) }); err != nil {
		return nil, c.abort(err)
	}
	return s, nil
}

func (s *SendConn) setUp(ctx context.Context, h handshake.Handle) error {
	c := s.conn
	plan, err := c.t.paths(ctx, c.s)
	if err != nil {
		return err
	}
	mask, err := c.establish(ctx, plan, &handshake.Open{
		Conn: c.id, Listen: h.Listen, Proof: handshake.Proof(h.Secret, c.s.ID(), h.Listen, c.id),
	})
	if lanes := bits.OnesCount32(mask); lanes < len(plan) {
		c.t.forgetPaths(c.s) // what was proved once does not hold now
	}
	if errors.Is(err, errNoLane) {
		return c.noLane()
	}
	if err == nil {
		c.announce(mask)
	}
	return err
}
