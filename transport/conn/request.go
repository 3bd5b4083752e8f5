package conn

import (
	"fmt"

	"ncclmesh/transport/board"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Request is an outstanding send or receive. It belongs to its connection, which
// uses it again once Test has reported it done, or C has taken its answer from the
// connection's board.
type Request struct {
	c         *Conn
	index     int
	active    bool   // busy says whether it still is
	gen       uint64 // counts its uses
	done      bool
	n         int    // messages: 1 for a send
	remaining uint32 // sub-receives that are not complete; of a send a bit for each part
	seq       uint64 // of the receive
	lane      uint8  // of a receive: that last carried its grant
	noKeys    bool   // of a receive: its grant said nothing of where the buffers lie

	subs  []sub  // of each message; as many as a request of this end can have
	sent  *sent  // nil of a receive
	trace *Trace // or nil
}

// sent is what is known of a send's parts until they are delivered.
type sent struct {
	addr   uintptr // of the message
	number uint64  // in the order in which messages are posted, or parts of them again
	sub    uint8   // of the receive
	last   uint8   // number of its last part
	lost   uint32  // a bit for each part that is to be sent again
	resent uint32  // a bit for each that was, and is charged to what may be
	tag    int32   // of an eager message
	head   uint32  // see lane.Eager
	lanes  [lane.MaxParts]uint8
	sizes  [lane.MaxParts]uint32
}

// A board has room for all of them.
const (
	_ = uint(board.Requests - lane.Window)
	_ = uint(board.MaxSizes - lane.MaxSubs)
)

// sub is one message of a request: what is sent, or what has arrived of a
// sub-receive. A connection has two thousand of them.
type sub struct {
	addr         uintptr      // of a receive's buffer
	region       *lane.Region // that it lies in, while a device may use it
	capacity     uint32
	size         uint32 // bytes sent, or of the parts seen
	begun        uint32 // parts that have begun to arrive, where the carrier places them
	seen         uint32 // parts that have arrived
	last         uint8  // number of the last part, once one has arrived
	deregistered bool   // the buffer was deregistered
}

// newRequests makes n requests, each of up to subs messages.
func (c *Conn) newRequests(n, subs int) []Request {
	all := make([]Request, n)
	s := make([]sub, n*subs)
	for i := range all {
		all[i] = Request{c: c, index: i, subs: s[i*subs : (i+1)*subs : (i+1)*subs]}
	}
	return all
}

// Request returns the connection's request of that index.
func (c *Conn) Request(i int) *Request {
	if i < 0 || i >= lane.Window {
		return nil
	}
	return &c.requests[i]
}

// Board puts the connection's handle on its board and returns where that lies for C, or
// 0 when there is none.
func (c *Conn) Board(comm uint64) uintptr { return c.board.Enter(comm) }

// Index is a number below 512 that no other outstanding request of the
// connection has.
func (r *Request) Index() int { return r.index }

// Generation is the number of the request's present use. Its owner may ask for it until
// it is done.
func (r *Request) Generation() uint64 { return r.gen }

// Outstanding is the generation in which the request is outstanding, or 0. It may be
// called from any goroutine.
func (r *Request) Outstanding() uint64 { return r.c.board.Outstanding(r.index) }

// Sizes are the bytes of a request's messages: that were sent, or received into each
// buffer. They are laid out as NCCL's own, which may end with the request's last message.
type Sizes [lane.MaxSubs]uint32

// Test reports whether the request is done, and then writes the sizes of its messages and
// no others, unless sizes is nil: under the lock, as the request may serve another message
// at once. It takes the lanes' news. Once it has returned true, or an error, the request
// must not be used again.
func (r *Request) Test(sizes *Sizes) (done bool, err error) {
	c := r.c
	if !c.TryLock() {
		return false, nil
	}
	defer c.Unlock()
	if !r.busy() {
		return false, fmt.Errorf("%w: %v: request %d is not outstanding", fault.ErrUsage, c, r.index)
	}
	done, err = r.answer(sizes)
	if r.trace != nil {
		r.notifyWatch(done || err != nil)
	}
	return done, err
}

// answer is Test of a request that is outstanding.
func (r *Request) answer(sizes *Sizes) (done bool, err error) {
	c := r.c
	before := c.ending.Load() // what came before the end is found
	if !r.done || c.hasUnsent() {
		c.testing = r
		c.poll()
		c.testing = nil
	}
	switch {
	case !r.done:
		return false, c.requestError(before)
	case c.hasUnsent():
		return false, nil
	}
	if sizes != nil {
		for i := range r.n {
			sizes[i] = r.subs[i].size
		}
	}
	c.board.End(r.index)
	r.active = false
	c.recycle(r)
	return true, nil
}

// begin makes r outstanding with n buffers. Its owner and C know nothing of it before
// show.
func (c *Conn) begin(r *Request, n int) {
	r.active, r.done, r.n = true, false, n
	r.gen++
	r.trace = c.newTrace()
	c.pending++
}

// show says on the board that r is outstanding, once what it needs is on its way: the
// store waits for all before it.
func (c *Conn) show(r *Request) *Request {
	c.board.Begin(r.index, r.gen)
	return r
}

// busy reports whether r is outstanding: nobody has had its answer. It is free again
// when C has.
func (r *Request) busy() bool {
	if r.active && r.done && r.c.board.Taken(r.index, r.gen) {
		r.active = false
		r.c.recycle(r)
	}
	return r.active
}

// releaseBuffers drops r's hold on its buffers: no device uses them any more.
func (r *Request) releaseBuffers() {
	for i := range r.n {
		if s := &r.subs[i]; s.region != nil {
			s.region.InUse--
			s.region = nil
		}
	}
}

// complete marks r done, and says so on the board, but for one whose Test is waiting for
// that. Over passive lanes only Test may say so: it acknowledges before; and of a request
// that is watched: it tells before.
func (r *Request) complete() {
	r.done = true
	r.c.pending--
	r.releaseBuffers()
	c := r.c
	if r == r.c.testing || c.traits.Polled || r.trace != nil {
		return
	}
	sizes := c.board.Sizes(r.index, r.n)
	for i := range sizes {
		sizes[i] = r.subs[i].size
	}
	c.board.Done(r.index, r.gen)
}

// recycle makes a request free that nobody uses. A receive's slot is free with it.
func (c *Conn) recycle(r *Request) {
	if c.sender != nil {
		c.sender.free = append(c.sender.free, uint16(r.index))
	}
}

// abandon ends every outstanding request: nothing uses its buffers any more.
func (c *Conn) abandon() {
	for i := range c.requests {
		if r := &c.requests[i]; r.active && !r.done {
			r.releaseBuffers()
		}
	}
	if r := c.receiver; r != nil {
		r.granted, r.regrants, r.regrantsInFlight = 0, slots{}, counts{}
	}
}
