package rma

import (
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
)

// MaxContexts is the largest number of contexts that one call of NewContext makes.
const MaxContexts = 1 << 12

// requestsPerContext is the number of requests that NCCL has outstanding for each context and rank: 32 for each receive that the
// device's properties allow to group.
const requestsPerContext = 32 * 8

// A Context is a number of independent series of operations of a group.
type Context struct {
	g       *Group
	indices int
}

// NewContext makes a context with n series, which are numbered from 0.
func (g *Group) NewContext(n int) (*Context, error) {
	if n < 1 || n > MaxContexts {
		return nil, fmt.Errorf("%w: %d contexts; 1 to %d can be made", fault.ErrUsage, n, MaxContexts)
	}
	for i := range g.links {
		g.links[i].reserve(n * requestsPerContext)
	}
	return &Context{g, n}, nil
}

// Destroy ends the use of a context. Operations that have not begun are dropped; those that have begun continue, and nobody is
// told of their ends.
func (c *Context) Destroy() {
	for i := range c.g.links {
		c.g.links[i].forget(c)
	}
}

// Bytes is a range of a window.
type Bytes struct {
	Window *Window // nil: no bytes
	Offset uint64
}

// Put copies size bytes of this rank to a rank. The request is done when they are there, and this rank may use its own again.
func (c *Context) Put(index int, from Bytes, size uint64, to Bytes, rank int) (Request, error) {
	return c.PutSignal(index, from, size, to, rank, nil)
}

// What a signal does with its word.
const (
	SignalAdd = onesided.SignalAdd // adds the value
	SignalInc = onesided.SignalInc // adds 1
)

// A Signal changes a word of 64 bits.
type Signal struct {
	Word  Bytes
	Do    onesided.SignalOp // SignalAdd or SignalInc
	Value uint64
}

// PutSignal copies bytes as Put does, and changes a word of the rank when they and all earlier operations of this rank to that one are
// there. Without bytes it only changes the word.
func (c *Context) PutSignal(index int, from Bytes, size uint64, to Bytes, rank int, s *Signal) (Request, error) {
	l, err := c.link(index, rank)
	if err != nil {
		return 0, err
	}
	o := operation{verb: doPut}
	if size > 0 {
		if from.Window == nil || to.Window == nil {
			return 0, fmt.Errorf("%w: a put of %d bytes needs a window to read from and a window to write to", fault.ErrUsage, size)
		}
		if err := from.check(size); err != nil {
			return 0, err
		}
		o.source, o.sourceOff, o.size, o.target, o.targetOff = from.Window, from.Offset, size, to.Window, to.Offset
	}
	switch {
	case s != nil && s.Word.Window == nil:
		return 0, fmt.Errorf("%w: a signal needs a window with the word", fault.ErrUsage)
	case s != nil:
		o.word = s.Word.Window
		o.signal = onesided.Signal{Window: o.word.w.ID(), Do: s.Do, Offset: s.Word.Offset, Value: s.Value}
	case size == 0:
		o.verb = doNothing
	}
	return l.post(c, &o)
}

// Get copies size bytes of a rank to this one. The request is done when they are here, also for the GPU.
func (c *Context) Get(index int, from Bytes, size uint64, to Bytes, rank int) (Request, error) {
	l, err := c.link(index, rank)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		return l.post(c, &operation{verb: doNothing})
	}
	if from.Window == nil || to.Window == nil {
		return 0, fmt.Errorf("%w: a get of %d bytes needs a window to read from and a window to write to", fault.ErrUsage, size)
	}
	if err := to.check(size); err != nil {
		return 0, err
	}
	return l.post(c, &operation{verb: doGet, source: to.Window, sourceOff: to.Offset, size: size, target: from.Window, targetOff: from.Offset})
}

// Flush returns a request that is done when the bytes of all earlier gets from a rank are here. It returns 0 if there are none.
func (c *Context) Flush(index, rank int) (Request, error) {
	l, err := c.link(index, rank)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	gets := l.gets
	l.mu.Unlock()
	if gets == 0 {
		return 0, nil
	}
	return l.post(c, &operation{verb: doFlush})
}

// Progress moves the operations of the whole group on.
func (c *Context) Progress() { c.g.Progress() }

// link returns the link to a rank.
func (c *Context) link(index, rank int) (*link, error) {
	if err := c.g.usable(); err != nil {
		return nil, err
	}
	switch {
	case index < 0 || index >= c.indices:
		return nil, fmt.Errorf("%w: context %d; there are %d, counted from 0", fault.ErrUsage, index, c.indices)
	case rank < 0 || rank >= len(c.g.links):
		return nil, fmt.Errorf("%w: rank %d of a group of %d", fault.ErrUsage, rank, len(c.g.links))
	}
	return &c.g.links[rank], nil
}

// check returns an error unless size bytes lie inside a window of this rank that is not being deregistered.
func (b Bytes) check(size uint64) error {
	w := b.Window
	switch {
	case w.ending.Load():
		return fmt.Errorf("%w: window %d was deregistered", fault.ErrUsage, w.w.ID())
	case b.Offset > w.w.Size() || size > w.w.Size()-b.Offset:
		return fmt.Errorf("%w: %d bytes at offset %d of window %d, which has %d bytes", fault.ErrUsage, size, b.Offset, w.w.ID(), w.w.Size())
	}
	return nil
}
