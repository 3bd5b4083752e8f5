package transport

import (
	"context"
	"fmt"
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
		s, err := t.connect(ctx, h)
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
		return nil, fmt.Errorf("%w: %w", ErrPeer, err)
	}
	c := newConn(t, sess, t.lastID.Add(1), true)
	s := newSendConn(c)
	if err := t.add(c); err != nil {
		return nil, err
	}
	if err := s.setUp(ctx, h); err != nil {
		return nil, c.abort(err)
	}
	return s, nil
}

func (s *SendConn) setUp(ctx context.Context, h handshake.Handle) error {
	c := s.conn
	plan := c.t.plan(c.s.Peer().Ports)
	if len(plan) == 0 {
		return c.noPath()
	}
	if err := c.build(plan); err != nil {
		return err
	}
	devs, lanes := c.offers(1<<len(c.lanes) - 1)
	err := c.s.Send(&handshake.Open{
		Conn: c.id, Listen: h.Listen, Proof: handshake.Proof(h.Secret, c.s.ID(), h.Listen, c.id),
		Base: uint64(c.wireBase), Devices: devs, Lanes: lanes,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPeer, err)
	}
	acc, err := expect[*handshake.Accept](ctx, c)
	if err != nil {
		return err
	}
	if err := c.adopt(acc.Base, acc.Devices); err != nil {
		return err
	}
	connected := c.connectLanes(acc.Devices, acc.Lanes)
	if err := c.s.Send(&handshake.Connected{Conn: c.id, Lanes: connected}); err != nil {
		return fmt.Errorf("%w: %w", ErrPeer, err)
	}
	proved := c.prove(ctx, connected)
	m := &handshake.Proved{Conn: c.id, Lanes: proved}
	for _, l := range c.lanes {
		if proved&(1<<l.index) == 0 {
			if l.reason == "" {
				l.reason = "the peer could not connect its half"
			}
			m.Failed = append(m.Failed, handshake.LaneFailure{Index: l.index, Reason: clip(l.reason, 200)})
		}
	}
	if err := c.s.Send(m); err != nil {
		return fmt.Errorf("%w: %w", ErrPeer, err)
	}
	if proved == 0 {
		return c.noPath()
	}
	ready, err := expect[*handshake.Ready](ctx, c)
	if err != nil {
		return err
	}
	mask := ready.Lanes & proved
	if lanesOf(mask) == 0 {
		return c.noPath()
	}
	c.announce(mask)
	c.use(mask)
	return nil
}
