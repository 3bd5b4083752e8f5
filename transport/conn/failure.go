package conn

import (
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/printable"
)

// FirstFailure is the text of the first failure of any connection of this process. When a connection fails,
// the program closes its other connections, and their peers close theirs. Each peer is sent the first
// failure, so that its error names the cause. The zero value means no failure. The methods do not block.
type FirstFailure struct{ first atomic.Pointer[string] }

// Note stores a failure, unless an earlier one is stored.
func (l *FirstFailure) Note(why string) { l.first.CompareAndSwap(nil, &why) }

// Forget clears the failure, because the program goes on in spite of it.
func (l *FirstFailure) Forget() { l.first.Store(nil) }

// String returns the failure, or "".
func (l *FirstFailure) String() string {
	if why := l.first.Load(); why != nil {
		return *why
	}
	return ""
}

// recordFirstFailure stores a failure of the connection as the process's first one, unless an earlier one is
// stored. It does so once for each connection. Failures of probes are not stored, because they do no harm.
func (c *Conn) recordFirstFailure(why string) {
	if !c.failureRecorded.Swap(true) && !c.Probe {
		c.env.FirstFailure.Note(printable.Line(why, maxFailureText))
	}
}

// recordFailure records the error that an operation on a connection returns, and returns it. It does not
// allocate once a failure of the connection is recorded, because callers may repeat the operation for long.
func (c *Conn) recordFailure(err error) error {
	if !c.failureRecorded.Load() {
		c.recordFirstFailure(err.Error())
	}
	return err
}

// maxFailureText is the most bytes of a failure's text that are sent to a peer.
const maxFailureText = 500

// endMessage returns the message that tells the peer of the end of the connection: a Bye if clean, else a
// Refuse with the reason why. Both carry the first failure of this process.
func (c *Conn) endMessage(clean bool, why error) handshake.Message {
	loss := c.env.FirstFailure.String()
	if clean {
		return &handshake.Bye{Conn: c.ID, Loss: loss}
	}
	text := printable.Line(why.Error(), maxFailureText)
	if text == loss { // the first failure is this connection's own
		loss = ""
	}
	m := &handshake.Refuse{Conn: c.ID, Text: text, Loss: loss}
	if c.env.Context.Err() != nil && !c.firstSetup.finished.Load() { // the session may stay open, because this process may relay for others
		m.Code = handshake.RefuseEnding
	}
	return m
}

// afterFailure returns the part of an error text that names the peer's first failure, or "" if there was
// none.
func afterFailure(loss string) string {
	if loss == "" {
		return ""
	}
	return ", after another connection had failed: " + loss
}
