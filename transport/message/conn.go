package message

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/bundle"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// conn is what both halves of a connection have in common. The bundle's mutex guards
// it, but for the counters.
type conn struct {
	b        *bundle.Bundle
	half     half
	requests []Request // of a receive half by slot; a send half's copies of eager messages follow
	pending  int       // requests not complete
	asked    *Request  // that is being tested; nil while none is
	watch    *Watch    // or nil
	traces   []*Trace  // not in use
	begun    uint64    // requests, while there is a watch
}

// half is what a half adds.
type half interface {
	bundle.Half
	recycle(*Request)          // a request is free again
	settled(*lane.Region) bool // only receives that nothing has come for use the region
	withdraw(*lane.Region)     // take the region's memory from those
}

// Bundle is what the connection's lanes are in.
func (c *conn) Bundle() *bundle.Bundle { return c.b }

// String names the connection by both nodes, sender first.
func (c *conn) String() string { return c.b.String() }

// figures says what the connection carried.
func (c *conn) figures() string {
	n := c.b.Count
	text := fmt.Sprintf("%d messages, %d bytes, %d grants waited for", n.Messages.Value(), n.Bytes.Value(), n.Waits.Value())
	if n := n.Resent.Value(); n > 0 {
		text += fmt.Sprintf(", %d bytes sent again", n)
	}
	return text
}

// moved is a number that changes when data moves. It may be called from any goroutine.
func (c *conn) moved() uint64 { return c.b.Count.Bytes.Value() + c.b.Count.Messages.Value() }

// say tells the peer over the session. It does not block. A dead session is found by others.
func (c *conn) say(m handshake.Message) {
	if err := c.b.Session.Send(m); err != nil && c.b.Session.Alive() {
		c.b.Fail(fmt.Errorf("%w: %v: %w", fault.ErrInternal, c.b, err))
	}
}

// Board puts the connection's handle on its board and returns where that lies for C, or
// 0 when there is none.
func (c *conn) Board(comm uint64) uintptr { return c.b.Board.Enter(comm) }

// Request returns the connection's request of that index.
func (c *conn) Request(i int) *Request {
	if i < 0 || i >= lane.Window {
		return nil
	}
	return &c.requests[i]
}

// abandon ends every outstanding request: nothing uses its buffers any more.
func (c *conn) abandon() {
	for i := range c.requests {
		if r := &c.requests[i]; r.active && !r.done {
			r.settle()
		}
	}
}

// Close ends the connection from this side; see [bundle.Bundle.Close].
func (c *conn) Close() error { return c.b.Close() }

// Fail ends the connection over an error that its owner met in a call of it.
func (c *conn) Fail(err error) { c.b.Fail(err) }

// RegMR registers host memory for the connection. It may be called while other
// threads send and receive.
func (c *conn) RegMR(addr, length uintptr) (*lane.Region, error) { return c.b.Register(addr, length) }

// RegDmaBufMR registers the memory of a DMA-BUF that the process sees at addr.
func (c *conn) RegDmaBufMR(addr, length uintptr, offset uint64, fd int) (*lane.Region, error) {
	return c.b.RegisterDmaBuf(addr, length, offset, fd)
}

// DeregMR ends a registration: after it has returned nil nothing touches the
// memory. Receives that use it and that nothing has come for yet may stay
// outstanding; the connection fails when data comes for them. When other requests
// use it, or the registration is shared, the connection is stopped first. After an
// error the memory is registered as before.
func (c *conn) DeregMR(r *lane.Region) error {
	if r == nil {
		return nil
	}
	c.b.Lock()
	defer c.b.Unlock()
	if !c.b.Holds(r) {
		return fmt.Errorf("%w: the memory handle belongs to another connection", fault.ErrUsage)
	}
	c.b.AwaitJoining(r)
	if r.InUse > 0 {
		c.b.Poll()
	}
	switch n := r.InUse; {
	case n == 0:
	case c.half.settled(r) && c.b.Withdraw(r):
		c.half.withdraw(r)
	default:
		c.b.Fail(fmt.Errorf("%w: %v: memory at %#x was deregistered with %d requests outstanding", fault.ErrUsage, c.b, r.Addr, n))
		if err := c.b.Quiesce(); err != nil {
			return fmt.Errorf("memory at %#x stays registered: %w", r.Addr, err)
		}
		if !c.b.Holds(r) { // closed meanwhile, which has released it
			return nil
		}
	}
	return c.b.Drop(r)
}
