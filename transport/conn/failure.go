package conn

import (
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/printable"
)

// Loss is the first failure that a connection of this process has had, in words for people. A program whose connection
// fails closes its others, whose peers then close theirs: they are told the failure from which all of that came. The zero
// value is no failure. Its methods do not block.
type FirstFailure struct{ first atomic.Pointer[string] }

// Note keeps a failure, unless there is an earlier one.
func (l *FirstFailure) Note(why string) { l.first.CompareAndSwap(nil, &why) }

// Forget forgets the failure: the program goes on in spite of it.
func (l *FirstFailure) Forget() { l.first.Store(nil) }

// String returns the failure, or "".
func (l *FirstFailure) String() string {
	if why := l.first.Load(); why != nil {
		return *why
	}
	return ""
}

// recordLoss keeps the failure of a connection, once for each. Trials fail without harm.
func (c *Conn) recordFirstFailure(why string) {
	if !c.failureRecorded.Swap(true) && !c.Probe {
		c.env.FirstFailure.Note(printable.Line(why, maxFailureText))
	}
}

// recordFailure keeps the error that an operation on a connection returns, unless its failure has been kept. It allocates nothing
// then, as callers may go on for long.
func (c *Conn) recordFailure(err error) error {
	if !c.failureRecorded.Load() {
		c.recordFirstFailure(err.Error())
	}
	return err
}

// maxLoss is how many bytes of a failure others are told.
const maxFailureText = 500

// endMessage returns what tells the peer that this side has closed the connection, in good order or else why not, and what
// this process has lost.
func (c *Conn) endMessage(clean bool, why error) handshake.Message {
	loss := c.env.FirstFailure.String()
	if clean {
		return &handshake.Bye{Conn: c.ID, Loss: loss}
	}
	text := printable.Line(why.Error(), maxFailureText)
	if text == loss { // it is this connection's own
		loss = ""
	}
	m := &handshake.Refuse{Conn: c.ID, Text: text, Loss: loss}
	if c.env.Context.Err() != nil && !c.firstSetup.finished.Load() { // its sessions may live on for what this process relays
		m.Code = handshake.RefuseEnding
	}
	return m
}

// because returns what an error says of the peer's loss.
func afterFailure(loss string) string {
	if loss == "" {
		return ""
	}
	return ", after another connection had failed: " + loss
}
