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
	Err          error
	closedAt     time.Time // when the peer closed in good order, or its process ended; else zero
	processEnded bool      // its process ended
	fromPeer     bool      // from the peer, or of it
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
	c.recordFirstFailure(err.Error())
	c.board.ComeIn()
	if !c.peerNotified.Swap(true) {
		_ = c.Session.Send(m) // a dead session is what we report anyway
	}
}

// kindOfRefuse returns the kind of error that a Refuse with a code is to this side.
func refuseKind(code uint8) error {
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
	return c.state.At() != Closed && e != nil && !e.closedAt.IsZero()
}

// Deliver hands the connection a message of its peer. It runs on the session's
// goroutine, which serves many connections, and does not block.
func (c *Conn) Deliver(m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Bye:
		c.end(ending{Err: fmt.Errorf("%w: %v: %s closed the connection%s", fault.ErrPeerClosed, c, c.Session.Name(), afterFailure(m.Loss)), closedAt: time.Now()}, m.Loss)
	case *handshake.Refuse:
		err := fmt.Errorf("%w: %v: %s says: %s%s", refuseKind(m.Code), c, c.Session.Name(), m.Text, afterFailure(m.Loss))
		c.end(ending{Err: c.explainWithdrawn(err)}, cmp.Or(m.Loss, err.Error()))
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
		return c.firstSetup
	}
	if s := c.joining.Load(); s != nil && s.epoch == epoch {
		return s
	}
	return nil
}

// setUp hands a message to the set-up that it is of.
func (c *Conn) setUp(m handshake.Message, epoch uint32) {
	if s := c.setupOf(epoch); s != nil {
		s.put(m)
		return
	}
	c.env.Log.Debug("message for a set-up that has ended", "conn", c.String(), "epoch", epoch, "type", m.Type())
}

// laneDown heeds that a lane is down at the peer: one that is being set up, or in service.
func (c *Conn) laneDown(m *handshake.LaneDown) {
	s := c.setupOf(m.Epoch)
	if s == nil || s.finished.Load() {
		c.enqueue(event{down: m})
		return
	}
	s.put(m)
	if s.finished.Load() {
		s.forwardInbox()
	}
}

// PeerGone notes that the peer's process has ended, or can be talked to no more, and reports whether that is what ends the
// connection: it is not where the peer has closed it before. It does not block.
func (c *Conn) PeerGone(err error) (news bool) {
	return c.end(ending{Err: err, closedAt: time.Now(), processEnded: true}, err.Error())
}

// end notes that the peer is done with the connection, and what it has lost, "" for nothing. Requests that its
// last writes completed are still found done. It reports whether the connection had not ended before.
func (c *Conn) end(e ending, loss string) (news bool) {
	c.peerNotified.Store(true)
	e.fromPeer = true
	if news = c.ending.CompareAndSwap(nil, &e); news && loss != "" {
		c.recordFirstFailure(loss)
	}
	c.board.ComeIn()
	c.peerDoneOnce.Do(func() { close(c.peerDone) })
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
func (c *Conn) requestError(before *ending) error {
	e := c.ending.Load()
	switch {
	case e == nil, e.fromPeer && e != before:
		return nil
	case c.Sending && !e.closedAt.IsZero() && time.Since(e.closedAt) < c.env.Scaled(lingerTime) && (c.closedCleanly() || c.mayDeliver(e.processEnded)):
		return nil
	}
	return c.recordFailure(e.Err) // also where the peer closed the connection, which is a failure only of one in use
}

// delivering reports whether a peer that has closed the connection may still
// acknowledge what was sent.
func (c *Conn) mayDeliver(gone bool) bool {
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
func (c *Conn) checkUsable(op string) error {
	if err := c.Ended(); err != nil {
		return c.recordFailure(err)
	}
	if c.state.At() == Closed {
		return fmt.Errorf("%w: %v: %s on a closed connection", fault.ErrUsage, c, op)
	}
	return nil
}
