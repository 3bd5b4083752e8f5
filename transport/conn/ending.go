package conn

import (
	"cmp"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// lingerTime is how long queue pairs outlive a close, for a lost last acknowledgement.
const lingerTime = 2 * time.Second

// ending is why a connection is over. Whoever finds that out first sets it, from
// any goroutine and without the connection's mutex: its holder may be destroying a queue
// pair, and waiting for the very event that is being handled.
type ending struct {
	Err    error
	leftAt time.Time // when the peer closed in good order, or its process ended; else zero
	gone   bool      // its process ended
	heard  bool      // from the peer, or of it
}

// Ended is why the connection is over; nil while it is not. It may be called from any
// goroutine.
func (c *Conn) Ended() error {
	if e := c.ending.Load(); e != nil {
		return e.Err
	}
	return nil
}

// Fail ends the connection and tells the peer why. It does not block, and may be
// called from any goroutine, with or without the connection locked.
func (c *Conn) Fail(err error) {
	if !c.ending.CompareAndSwap(nil, &ending{Err: err}) {
		return
	}
	c.publish(err)
	m := c.endMessage(false, err)
	c.recordLoss(err.Error())
	c.board.ComeIn()
	if !c.peerTold.Swap(true) {
		_ = c.Session.Send(m) // a dead session is what we report anyway
	}
}

// kindOfRefuse returns the kind of error that a Refuse with a code is to this side.
func kindOfRefuse(code uint8) error {
	if code == handshake.RefuseEnding {
		return fault.ErrPeerGone
	}
	return fault.ErrPeerRefused
}

// peerClosed reports whether the peer has closed the connection in good order, or its process has
// ended, and this side has not closed it.
//
// Preconditions: c is locked.
func (c *Conn) peerClosed() bool {
	e := c.ending.Load()
	return c.life.At() != Closed && e != nil && !e.leftAt.IsZero()
}

// Deliver hands the connection a message of its peer. It runs on the session's
// goroutine, which serves many connections, and does not block.
func (c *Conn) Deliver(m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Bye:
		c.end(ending{Err: fmt.Errorf("%w: %v: %s closed the connection%s", fault.ErrPeerClosed, c, c.Session.Name(), because(m.Loss)), leftAt: time.Now()}, m.Loss)
	case *handshake.Refuse:
		err := fmt.Errorf("%w: %v: %s says: %s%s", kindOfRefuse(m.Code), c, c.Session.Name(), m.Text, because(m.Loss))
		c.end(ending{Err: c.blame(err)}, cmp.Or(m.Loss, err.Error()))
	case *handshake.LaneDown:
		c.laneDown(m)
	case *handshake.Report:
		c.enqueue(event{report: m})
	case *handshake.Want:
		c.enqueue(event{want: m})
	case *handshake.Open:
		c.join(m)
	case *handshake.Accept:
		c.setUp(m, m.Epoch)
	case *handshake.Connected:
		c.setUp(m, m.Epoch)
	case *handshake.Proved:
		c.setUp(m, m.Epoch)
	default:
		c.Fail(fmt.Errorf("%w: %v: %v is not a message of a connection", fault.ErrProtocol, c, m.Type()))
	}
}

// setupOf is the set-up of that epoch, or nil when there is none any more.
func (c *Conn) setupOf(epoch uint32) *setup {
	if epoch == 0 {
		return c.first
	}
	if s := c.joining.Load(); s != nil && s.epoch == epoch {
		return s
	}
	return nil
}

// setUp hands a message to the set-up that it is of.
func (c *Conn) setUp(m handshake.Message, epoch uint32) {
	if s := c.setupOf(epoch); s != nil {
		s.post(m)
		return
	}
	c.env.Log.Debug("message for a set-up that has ended", "conn", c.String(), "epoch", epoch, "type", m.Type())
}

// laneDown heeds that a lane is down at the peer: one that is being set up, or in service.
func (c *Conn) laneDown(m *handshake.LaneDown) {
	s := c.setupOf(m.Epoch)
	if s == nil || s.over.Load() {
		c.enqueue(event{down: m})
		return
	}
	s.post(m)
	if s.over.Load() {
		s.forwardInbox()
	}
}

// PeerGone notes that the peer's process has ended, or can be talked to no more, and reports whether that is what ends the
// connection: it is not where the peer has closed it before. It does not block.
func (c *Conn) PeerGone(err error) (news bool) {
	return c.end(ending{Err: err, leftAt: time.Now(), gone: true}, err.Error())
}

// end notes that the peer is done with the connection, and what it has lost, "" for nothing. Requests that its
// last writes completed are still found done. It reports whether the connection had not ended before.
func (c *Conn) end(e ending, loss string) (news bool) {
	c.peerTold.Store(true)
	e.heard = true
	if news = c.ending.CompareAndSwap(nil, &e); news && loss != "" {
		c.recordLoss(loss)
	}
	c.board.ComeIn()
	c.byeOnce.Do(func() { close(c.bye) })
	c.events.wake()
	return news
}

// outcome is the error of a request that is not complete, or nil while it may
// still be: a receiver's Bye, and over TCP its end, can overtake the
// acknowledgement of the last send, and its queue pairs linger for that. before is
// the connection's ending from before the last poll: what the peer said since may
// have overtaken what the next poll finds.
//
// Preconditions: c is locked.
func (c *Conn) outcome(before *ending) error {
	e := c.ending.Load()
	switch {
	case e == nil, e.heard && e != before:
		return nil
	case c.Sending && !e.leftAt.IsZero() && time.Since(e.leftAt) < c.env.Scaled(lingerTime) && (c.closedCleanly() || c.delivering(e.gone)):
		return nil
	}
	return c.recordFailure(e.Err) // also where the peer closed the connection, which is a failure only of one in use
}

// delivering reports whether a peer that has closed the connection may still
// acknowledge what was sent.
func (c *Conn) delivering(gone bool) bool {
	for _, l := range c.lanes {
		if l.Carrier.Delivering(gone) {
			return true
		}
	}
	return false
}

// usable is the error of an operation on a connection that has ended, or that its owner
// has closed; nil on one that lives.
//
// Preconditions: c is locked.
func (c *Conn) usable(op string) error {
	if err := c.Ended(); err != nil {
		return c.recordFailure(err)
	}
	if c.life.At() == Closed {
		return fmt.Errorf("%w: %v: %s on a closed connection", fault.ErrUsage, c, op)
	}
	return nil
}
