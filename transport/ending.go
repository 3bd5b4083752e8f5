package transport

import (
	"fmt"
	"strings"
	"time"

	"ncclmesh/handshake"
)

// ending is why a connection is over. Whoever finds that out first sets it, from
// any goroutine and without the connection's mutex: who holds that may be waiting
// for queue pairs to drain, or for the very event that is being handled.
type ending struct {
	err    error
	leftAt time.Time // when the peer closed in good order, or its process ended; else zero
	gone   bool      // its process ended
	heard  bool      // from the peer, or of it
}

// ended is why the connection is over; nil while it is not.
func (c *conn) ended() error {
	if e := c.ending.Load(); e != nil {
		return e.err
	}
	return nil
}

// fail ends the connection and tells the peer why. It does not block, and may be
// called with or without c.mu.
func (c *conn) fail(err error) {
	if !c.ending.CompareAndSwap(nil, &ending{err: err}) {
		return
	}
	if !c.peerTold.Swap(true) {
		_ = c.s.Send(&handshake.Refuse{Conn: c.id, Text: clip(err.Error(), 500)}) // a dead session is what we report anyway
	}
}

// deliver hands the connection a message of its peer. It runs on the session's
// goroutine, which serves many connections, and does not block.
func (c *conn) deliver(m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Bye:
		c.peerEnded(ending{err: fmt.Errorf("%w: %v: %s closed the connection", ErrPeerClosed, c, c.s.Name()), leftAt: time.Now()})
	case *handshake.Refuse:
		c.peerEnded(ending{err: c.blame(fmt.Errorf("%w: %v: %s says: %s", ErrPeerRefused, c, c.s.Name(), m.Text))})
	default:
		select {
		case c.inbox <- m:
		default:
			c.fail(fmt.Errorf("%w: %v: more messages than the protocol has", ErrProtocol, c))
		}
	}
}

// peerEnded notes that the peer is done with the connection. Requests that its
// last writes completed are still found done.
func (c *conn) peerEnded(e ending) {
	c.peerTold.Store(true)
	e.heard = true
	c.ending.CompareAndSwap(nil, &e)
	c.byeOnce.Do(func() { close(c.bye) })
}

// verdictOn is the error of a request that is not complete, or nil while it may
// still be: a receiver's Bye, and over TCP its end, can overtake the
// acknowledgement of the last send, and its queue pairs linger for that. before is
// the connection's ending from before the last poll: what the peer said since may
// have overtaken what the next poll finds.
//
// Preconditions: c.mu is held.
func (c *conn) verdictOn(r *Request, before *ending) error {
	if r.err != nil {
		return r.err
	}
	e := c.ending.Load()
	if e == nil || e.heard && e != before || c.sending && !e.leftAt.IsZero() && time.Since(e.leftAt) < c.t.opts.scaled(lingerTime) &&
		(!e.gone || len(c.sockets) > 0) && c.mayDeliver() {
		return nil
	}
	return e.err
}

// over is the error of an operation on a connection that has ended.
func (c *conn) over(op string) error {
	if err := c.ended(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %v: %s on a closed connection", ErrUsage, c, op)
}

// clip shortens text for the wire.
func clip(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
