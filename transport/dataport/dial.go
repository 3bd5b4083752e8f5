package dataport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

const (
	minPause = 10 * time.Millisecond // between two attempts, before scaling; doubled up to maxPause
	maxPause = 200 * time.Millisecond
)

// Dial connects a lane to its other side, which listens on to, and returns its stream. It repeats attempts until the
// context ends, unless the process that answers is not the lane's other side.
func (e *Endpoint) Dial(ctx context.Context, end End, to netip.AddrPort) (*sock.Stream, error) {
	return e.lane(ctx, to, end)
}

// DialThrough connects a lane through a circuit: hop is the circuit's first hop, to a relay that listens on to, and
// contains this side's address. A relay accepts a hop only once; therefore only the connection of the hop is retried.
func (e *Endpoint) DialThrough(ctx context.Context, hop End, to netip.AddrPort, end End) (*sock.Stream, error) {
	return e.lane(ctx, to, hop, end)
}

// DialHop connects a circuit's hop to its other side, which listens on to: the next relay or, if the end has no name,
// the receiver of the lane. In the latter case the two sides of the lane authenticate each other.
func (e *Endpoint) DialHop(ctx context.Context, end End, to netip.AddrPort) (c sock.Conn, err error) {
	err = e.retry(ctx, func(ctx context.Context) error {
		var err error
		c, err = e.attempt(ctx, to, end)
		return err
	})
	return c, err
}

// lane connects a lane. With two ends, the lane's end is behind the hop's.
func (e *Endpoint) lane(ctx context.Context, to netip.AddrPort, ends ...End) (s *sock.Stream, err error) {
	err = e.retry(ctx, func(ctx context.Context) error {
		c, err := e.attempt(ctx, to, ends...)
		if err != nil {
			return err
		}
		defer c.Close()
		if s, err = c.Stream(); err != nil && ends[0].Reached != nil {
			ends[0].Reached(false)
		}
		return err
	})
	return s, err
}

// retry repeats an attempt while its error is temporary, until the context ends.
func (e *Endpoint) retry(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	var last error
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := limit.Own(try(ctx))
		if err == nil {
			e.mu.Lock()
			e.stats.Dialled++
			e.mu.Unlock()
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // the error of the last attempt explains more than the end of the context
		}
		if !temporary(err) {
			return last
		}
		timer := e.cfg.Clock.NewTimer(e.cfg.Clock.Scaled(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			if e.ctx.Err() != nil {
				return net.ErrClosed
			}
			return last
		case <-timer.C:
		}
	}
}

// beyondHop is an error behind a hop that was connected. It hides the cause, so that the attempt is not repeated.
type beyondHop struct{ error }

// temporary reports whether another attempt may succeed: the other side closed the connection before it answered, or
// does not listen yet, or this node ran out of a resource.
func temporary(err error) bool {
	if limit.IsOwn(err) {
		return true
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, unix.ECONNREFUSED, unix.EADDRNOTAVAIL, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// attempt makes one attempt: it connects from the address of the first end, and authenticates with the other side of
// each end that has a name, one behind the other.
func (e *Endpoint) attempt(ctx context.Context, to netip.AddrPort, ends ...End) (_ sock.Conn, err error) {
	first := ends[0]
	c, err := e.connect(ctx, first, to)
	if err != nil {
		return nil, err
	}
	if first.Reached != nil {
		first.Reached(true)
	}
	defer func() {
		if err == nil {
			return
		}
		_ = c.Close()
		if first.Reached != nil {
			first.Reached(false)
		}
	}()
	if err := c.SetPatience(e.patience()); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	for i, end := range ends {
		switch {
		case i > 0:
			if err := authenticate(ctx, c, end, fmt.Sprintf("the lane's other end behind %v", to)); err != nil {
				return nil, beyondHop{err}
			}
		case end.Name != (handshake.LaneName{}):
			if err := authenticate(ctx, c, end, to.String()); err != nil {
				return nil, err
			}
		}
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return c, nil
}

// connect opens a connection from the end's address and interface.
func (e *Endpoint) connect(ctx context.Context, end End, to netip.AddrPort) (sock.Conn, error) {
	c, err := e.network.Dial(ctx, sock.From{Addr: end.Addr, Netdev: end.Netdev, Ports: e.cfg.PortRange}, to)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("no answer: %w", err)
	}
	return nil, fmt.Errorf("connect from %v on %s to %v: %w", end.Addr, end.Netdev, to, err)
}

// authenticate runs the dialler's side of the handshake.
func authenticate(ctx context.Context, c sock.Conn, end End, who string) error {
	hello, err := handshake.LaneHello(end.Key, end.Name, end.Tokens)
	if err != nil {
		return err
	}
	if _, err := c.Write(hello[:]); err != nil {
		return err
	}
	var welcome [handshake.LaneWelcomeSize]byte
	if _, err := io.ReadFull(c, welcome[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("connected to %v, which did not answer: %w", who, context.Cause(ctx))
		}
		return fmt.Errorf("%v did not accept the lane, perhaps because it has too many connections; its log says why: %w", who, err)
	}
	if err := handshake.CheckLaneWelcome(end.Key, welcome, hello, end.Tokens); err != nil {
		return fmt.Errorf("%v is not the peer: %w", who, err)
	}
	return nil
}
