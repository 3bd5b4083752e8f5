package conn

import (
	"cmp"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// lingerTime is how long queue pairs stay open after Close, because the peer may still need an
// acknowledgement that was lost.
const lingerTime = 2 * time.Second

// ending says why a connection has ended. The first goroutine that finds a reason stores it without the
// connection's mutex, because the holder of the mutex may be destroying a queue pair, and waiting for the
// very event that is being handled.
type ending struct {
	Err          error
	closedAt     time.Time // when the peer closed the connection cleanly or its process ended; else zero
	processEnded bool      // the peer's process has ended
	fromPeer     bool      // the peer sent the reason, or is gone
}

// Ended returns why the connection has ended, or nil if it has not. It may be called from any goroutine.
func (c *Conn) Ended() error {
	if e := c.ending.Load(); e != nil {
		return e.Err
	}
	return nil
}

// Fail ends the connection with an error, and sends the peer the reason. It does nothing if the connection
// has ended. It does not block. It may be called from any goroutine, whether or not the connection is locked.
func (c *Conn) Fail(err error) {
	if !c.ending.CompareAndSwap(nil, &ending{Err: err}) {
		return
	}
	c.publish(err)
	m := c.endMessage(false, err)
	c.recordFirstFailure(err.Error())
	c.board.Disable()
	if !c.peerNotified.Swap(true) {
		_ = c.Session.Send(m) // if the session is dead the peer learns of the end from that
	}
}

// refuseKind returns the kind of error that a Refuse with a code causes on this side.
func refuseKind(code uint8) error {
	if code == handshake.RefuseEnding {
		return fault.ErrPeerGone
	}
	return fault.ErrPeerRefused
}

// peerClosed reports whether the peer has closed the connection cleanly, or its process has ended, while this
// side has not called Close.
//
// Preconditions: c is locked.
func (c *Conn) peerClosed() bool {
	e := c.ending.Load()
	return c.state.At() != Closed && e != nil && !e.closedAt.IsZero()
}

// Deliver handles a message from the peer. It is called by the session's goroutine, which serves many
// connections, and does not block.
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
	case *handshake.Window:
		c.enqueue(event{window: m})
	case *handshake.WindowEnd:
		c.enqueue(event{windowEnd: m})
	case *handshake.Open:
		c.join(m)
	case *handshake.Accept:
		c.setUp(m, m.Epoch)
	case *handshake.Connected:
		c.setUp(m, m.Epoch)
	case *handshake.Validated:
		c.setUp(m, m.Epoch)
	default:
		c.Fail(fmt.Errorf("%w: %v: %v is not a message of a connection", fault.ErrProtocol, c, m.Type()))
	}
}

// setupOf returns the set-up of an epoch, or nil if it is over and forgotten.
func (c *Conn) setupOf(epoch uint32) *setup {
	if epoch == 0 {
		return c.firstSetup
	}
	if s := c.joining.Load(); s != nil && s.epoch == epoch {
		return s
	}
	return nil
}

// setUp hands a message to the set-up of its epoch. A message for a set-up that is over is dropped.
func (c *Conn) setUp(m handshake.Message, epoch uint32) {
	if s := c.setupOf(epoch); s != nil {
		s.put(m)
		return
	}
	c.env.Log.Debug("message for a set-up that has ended", "conn", c.String(), "epoch", epoch, "type", m.Type())
}

// laneDown handles a LaneDown of the peer. If the lane is being set up the set-up gets it, else the event
// queue.
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

// PeerGone notes that the peer's process has ended, or cannot be reached any more. It reports whether that
// ends the connection, which it does not if the connection has ended before. It does not block.
func (c *Conn) PeerGone(err error) (ended bool) {
	return c.end(ending{Err: err, closedAt: time.Now(), processEnded: true}, err.Error())
}

// end ends the connection because of the peer, whose first failure is loss, "" for none. Requests that were
// completed by the peer's last writes are still reported done. It reports whether the connection had not
// ended before.
func (c *Conn) end(e ending, loss string) (ended bool) {
	c.peerNotified.Store(true)
	e.fromPeer = true
	if ended = c.ending.CompareAndSwap(nil, &e); ended && loss != "" {
		c.recordFirstFailure(loss)
	}
	c.board.Disable()
	c.peerDoneOnce.Do(func() { close(c.peerDone) })
	c.events.wake()
	return ended
}

// requestError returns the error of a request that is not complete, or nil while it may still complete: a
// receiver's Bye, or over TCP its close, may overtake the acknowledgement of the last send, for which queue
// pairs linger. before is the ending as it was before the last poll: an ending that the peer caused since
// then may have overtaken data that the next poll finds.
//
// Preconditions: c is locked.
func (c *Conn) requestError(before *ending) error {
	e := c.ending.Load()
	switch {
	case e == nil, e.fromPeer && e != before:
		return nil
	case c.Sending && !e.closedAt.IsZero() && time.Since(e.closedAt) < c.env.Clock.Scaled(lingerTime) && (c.closedCleanly() || c.mayDeliver(e.processEnded)):
		return nil
	}
	return c.recordFailure(e.Err) // a clean close by the peer is a failure too while a request is outstanding
}

// mayDeliver reports whether a lane may still acknowledge what was sent to a peer that has closed the
// connection, or whose process has ended.
func (c *Conn) mayDeliver(processEnded bool) bool {
	for _, l := range c.lanes {
		if l.Carrier.Delivering(processEnded) {
			return true
		}
	}
	return false
}

// checkUsable returns an error if the connection has ended, or if its owner has closed it. op names the
// operation that needs it.
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
