package bundle

import (
	"cmp"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// lingerTime is how long queue pairs outlive a close, for a lost last acknowledgement.
const lingerTime = 2 * time.Second

// Ending is why a connection is over. Whoever finds that out first sets it, from
// any goroutine and without the bundle's mutex: its holder may be destroying a queue
// pair, and waiting for the very event that is being handled.
type Ending struct {
	Err    error
	leftAt time.Time // when the peer closed in good order, or its process ended; else zero
	gone   bool      // its process ended
	heard  bool      // from the peer, or of it
}

// Ended is why the connection is over; nil while it is not. It may be called from any
// goroutine.
func (b *Bundle) Ended() error {
	if e := b.ending.Load(); e != nil {
		return e.Err
	}
	return nil
}

// Ending is what the connection's end is known to be, for Verdict.
func (b *Bundle) Ending() *Ending { return b.ending.Load() }

// Fail ends the connection and tells the peer why. It does not block, and may be
// called from any goroutine, with or without the bundle locked.
func (b *Bundle) Fail(err error) {
	if !b.ending.CompareAndSwap(nil, &Ending{Err: err}) {
		return
	}
	b.say(err)
	m := b.endMessage(false, err)
	b.noteLoss(err.Error())
	b.Board.ComeIn()
	if !b.peerTold.Swap(true) {
		_ = b.Session.Send(m) // a dead session is what we report anyway
	}
}

// kindOfRefuse returns the kind of error that a Refuse with a code is to this side.
func kindOfRefuse(code uint8) error {
	if code == handshake.RefuseEnding {
		return fault.ErrPeerGone
	}
	return fault.ErrPeerRefused
}

// Left reports whether the peer has closed the connection in good order, or its process has
// ended, and this side has not closed it.
//
// Preconditions: b is locked.
func (b *Bundle) Left() bool {
	e := b.ending.Load()
	return !b.closed && e != nil && !e.leftAt.IsZero()
}

// Deliver hands the bundle a message of its peer. It runs on the session's
// goroutine, which serves many connections, and does not block.
func (b *Bundle) Deliver(m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Bye:
		b.end(Ending{Err: fmt.Errorf("%w: %v: %s closed the connection%s", fault.ErrPeerClosed, b, b.Session.Name(), because(m.Loss)), leftAt: time.Now()}, m.Loss)
	case *handshake.Refuse:
		err := fmt.Errorf("%w: %v: %s says: %s%s", kindOfRefuse(m.Code), b, b.Session.Name(), m.Text, because(m.Loss))
		b.end(Ending{Err: b.Blame(err)}, cmp.Or(m.Loss, err.Error()))
	case *handshake.LaneDown:
		b.laneDown(m)
	case *handshake.Report:
		b.tell(news{report: m})
	case *handshake.Want:
		b.tell(news{want: m})
	case *handshake.Open:
		b.join(m)
	case *handshake.Accept:
		b.setUp(m, m.Epoch)
	case *handshake.Connected:
		b.setUp(m, m.Epoch)
	case *handshake.Proved:
		b.setUp(m, m.Epoch)
	default:
		b.Fail(fmt.Errorf("%w: %v: %v is not a message of a connection", fault.ErrProtocol, b, m.Type()))
	}
}

// setupOf is the set-up of that epoch, or nil when there is none any more.
func (b *Bundle) setupOf(epoch uint32) *setup {
	if epoch == 0 {
		return b.first
	}
	if s := b.joining.Load(); s != nil && s.epoch == epoch {
		return s
	}
	return nil
}

// setUp hands a message to the set-up that it is of.
func (b *Bundle) setUp(m handshake.Message, epoch uint32) {
	if s := b.setupOf(epoch); s != nil {
		s.post(m)
		return
	}
	b.env.Log.Debug("message for a set-up that has ended", "conn", b.String(), "epoch", epoch, "type", m.Type())
}

// laneDown heeds that a lane is down at the peer: one that is being set up, or in service.
func (b *Bundle) laneDown(m *handshake.LaneDown) {
	s := b.setupOf(m.Epoch)
	if s == nil || s.over.Load() {
		b.tell(news{down: m})
		return
	}
	s.post(m)
	if s.over.Load() {
		s.heedInbox()
	}
}

// PeerGone notes that the peer's process has ended, or can be talked to no more, and reports whether that is what ends the
// connection: it is not where the peer has closed it before. It does not block.
func (b *Bundle) PeerGone(err error) (news bool) {
	return b.end(Ending{Err: err, leftAt: time.Now(), gone: true}, err.Error())
}

// end notes that the peer is done with the connection, and what it has lost, "" for nothing. Requests that its
// last writes completed are still found done. It reports whether the connection had not ended before.
func (b *Bundle) end(e Ending, loss string) (news bool) {
	b.peerTold.Store(true)
	e.heard = true
	if news = b.ending.CompareAndSwap(nil, &e); news && loss != "" {
		b.noteLoss(loss)
	}
	b.Board.ComeIn()
	b.byeOnce.Do(func() { close(b.bye) })
	b.heed.poke()
	return news
}

// Verdict is the error of a request that is not complete, or nil while it may
// still be: a receiver's Bye, and over TCP its end, can overtake the
// acknowledgement of the last send, and its queue pairs linger for that. before is
// the connection's ending from before the last poll: what the peer said since may
// have overtaken what the next poll finds.
//
// Preconditions: b is locked.
func (b *Bundle) Verdict(before *Ending) error {
	e := b.ending.Load()
	switch {
	case e == nil, e.heard && e != before:
		return nil
	case b.Sending && !e.leftAt.IsZero() && time.Since(e.leftAt) < b.env.Scaled(lingerTime) && (b.ClosedCleanly() || b.delivering(e.gone)):
		return nil
	}
	return b.failed(e.Err) // also where the peer closed the connection, which is a failure only of one in use
}

// delivering reports whether a peer that has closed the connection may still
// acknowledge what was sent.
func (b *Bundle) delivering(gone bool) bool {
	for _, l := range b.lanes {
		if l.Carrier.Delivering(gone) {
			return true
		}
	}
	return false
}

// Over is the error of an operation on a connection that has ended, or that its owner
// has closed; nil on one that lives.
//
// Preconditions: b is locked.
func (b *Bundle) Over(op string) error {
	if err := b.Ended(); err != nil {
		return b.failed(err)
	}
	if b.closed {
		return fmt.Errorf("%w: %v: %s on a closed connection", fault.ErrUsage, b, op)
	}
	return nil
}
