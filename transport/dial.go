package transport

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Dialing is a connection that the sender is setting up.
type Dialing struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	conn   *conn.Sender // set once; Poll returns it and sets it to nil
	err    error
	closed bool
}

// Dial starts to connect to the listener that h describes. It does not block.
func (t *Transport) Dial(h handshake.Handle) *Dialing {
	return t.dial(h, func(ctx context.Context, c *conn.Conn) ([]lane.Spec, error) {
		plan, err := t.paths.Await(ctx, c.Session)
		if err == nil {
			t.paths.SayWhy(c.Session)
		}
		return plan, err
	})
}

// planner chooses the lanes of a connection.
type planner func(context.Context, *conn.Conn) ([]lane.Spec, error)

func (t *Transport) dial(h handshake.Handle, plan planner) *Dialing {
	ctx, cancel := context.WithCancel(t.ctx)
	d := &Dialing{cancel: cancel}
	t.background(func() {
		defer cancel()
		var s *conn.Sender
		err := t.guarded("connect", func() (err error) {
			s, err = t.connect(ctx, h, plan)
			return err
		})
		d.mu.Lock()
		abandoned := d.closed || ctx.Err() != nil // Close of the Dialing or of the Transport
		if !abandoned {
			d.conn, d.err = s, err
		}
		d.mu.Unlock()
		if abandoned && s != nil {
			_ = s.Close() // no caller is left to return the error to
		}
	})
	return d
}

// Poll returns the connection once it is up. Nil without an error means not yet.
func (d *Dialing) Poll() (*conn.Sender, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.conn
	d.conn = nil
	return s, d.err
}

// Close cancels the set-up. A connection that Poll has returned stays open.
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

// connect sets up a connection from the sender's side.
func (t *Transport) connect(ctx context.Context, h handshake.Handle, plan planner) (*conn.Sender, error) {
	sess, err := t.ep.Dial(ctx, h)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: given up: %w", fault.ErrUsage, err)
		}
		return nil, fmt.Errorf("%w: %w", kindOf(err), err)
	}
	s := conn.NewSender(&t.env, sess, t.lastID.Add(1), t.opts.StripeThreshold)
	c := &s.Conn
	if err := t.add(c); err != nil {
		return nil, err
	}
	if err := t.guarded(c.String(), func() error { return t.establish(ctx, c, h, plan) }); err != nil {
		return nil, c.Abort(err)
	}
	return s, nil
}

// establish sets up the lanes of a connection.
func (t *Transport) establish(ctx context.Context, c *conn.Conn, h handshake.Handle, choose planner) error {
	plan, err := choose(ctx, c)
	if err != nil {
		return err
	}
	mask, err := c.Establish(ctx, plan, &handshake.Open{
		Conn: c.ID, Listen: h.Listen, Proof: handshake.Proof(h.Secret, c.Session.ID(), h.Listen, c.ID),
	})
	if lanes := bits.OnesCount32(mask); lanes < len(plan) {
		t.paths.Forget(c.Session) // some paths that were validated before do not work now
	}
	return t.outcome(c, err)
}

// outcome logs the result of a set-up. If no lane came up, it returns an error that explains why.
func (t *Transport) outcome(c *conn.Conn, err error) error {
	if errors.Is(err, conn.ErrNoLane) {
		tried := c.Failures()
		for _, p := range tried {
			t.log.Debug("no path", "path", p.String())
		}
		return fmt.Errorf("%v: %w", c, t.paths.NoPath(c.Session, tried, c.Slowness()))
	}
	if err == nil {
		t.env.FirstFailure.Forget()
		t.paths.WhyTCP(c)
		c.Announce()
	}
	return err
}
