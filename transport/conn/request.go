package conn

import (
	"fmt"

	"ncclmesh/transport/board"
	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Request is a send or receive. It belongs to its connection, which reuses it once Test has reported it done,
// or C has taken its result from the connection's board.
type Request struct {
	c         *Conn
	index     int
	active    bool   // outstanding, unless C has taken the result; see busy
	gen       uint64 // generation: counts the uses
	done      bool   // complete
	n         int    // number of messages: 1 in a send
	remaining uint32 // receive: number of incomplete sub-receives; send: a bit for each undelivered part
	seq       uint64 // sequence of the receive
	noKeys    bool   // receive: the grant was sent without keys, or not at all

	subs  []sub  // one for each message
	sent  *sent  // nil in a receive
	trace *Trace // nil if the request is not traced
}

// sent describes the parts of a send until they are delivered.
type sent struct {
	addr   uintptr // of the message
	number uint64  // sequence in which messages, and parts again, are posted
	sub    uint8   // index of the buffer in the receive
	tag    int32   // eager: of the message
	head   uint32  // eager: see lane.Eager
	sizes  [lane.MaxParts]uint32
	failover.Parts
}

// A board has room for all requests and their sizes.
const (
	_ = uint(board.Requests - lane.Window)
	_ = uint(board.MaxSizes - lane.MaxSubs)
)

// The failover of a connection has room for its lanes and the parts of a message.
const (
	_ = uint(failover.MaxLanes - lane.MaxParts)
	_ = uint(failover.MaxParts - lane.MaxParts)
)

// sub is one message of a request: one that is sent, or a sub-receive. A connection has two thousand.
type sub struct {
	addr         uintptr      // receive: of the buffer
	region       *lane.Region // of the buffer, while a device may use it
	capacity     uint32
	size         uint32 // bytes sent, or arrived
	begun        uint32 // parts that have begun to arrive, over carriers that write them piece by piece
	seen         uint32 // parts that have arrived
	last         uint8  // index of the last part, once a part has begun to arrive
	number       uint8  // of a brief signal, once a part has begun to arrive
	brief        bool   // the message is a brief signal, once a part has begun to arrive
	deregistered bool   // the buffer was deregistered
}

// newRequests makes n requests of up to subs messages each.
func (c *Conn) newRequests(n, subs int) []Request {
	all := make([]Request, n)
	s := make([]sub, n*subs)
	for i := range all {
		all[i] = Request{c: c, index: i, subs: s[i*subs : (i+1)*subs : (i+1)*subs]}
	}
	return all
}

// Request returns the connection's request of index i, or nil.
func (c *Conn) Request(i int) *Request {
	if i < 0 || i >= lane.Window {
		return nil
	}
	return &c.requests[i]
}

// Board writes the connection's handle to its board and returns the address of the board for C, or 0 if there
// is none.
func (c *Conn) Board(comm uint64) uintptr { return c.board.Publish(comm) }

// Index returns a number below 512 that no other outstanding request of the connection has.
func (r *Request) Index() int { return r.index }

// Generation returns the number of the request's present use. The owner may call it until the request is
// done.
func (r *Request) Generation() uint64 { return r.gen }

// Outstanding returns the generation of the outstanding request, or 0 if it is not outstanding. It may be
// called from any goroutine.
func (r *Request) Outstanding() uint64 { return r.c.board.Outstanding(r.index) }

// Sizes are the bytes of a request's messages that were sent, or received into each buffer. The layout is
// that of NCCL's array, which may end after the request's last message.
type Sizes [lane.MaxSubs]uint32

// Test polls the connection and reports whether the request is done. It then writes the sizes of the
// request's messages, and no other elements, to sizes unless that is nil. It does so with the connection
// locked, because the request may be reused at once. Once Test has returned true, or an error, the request
// must not be used again.
func (r *Request) Test(sizes *Sizes) (done bool, err error) {
	c := r.c
	if !c.TryLock() {
		return false, nil
	}
	defer c.Unlock()
	return r.test(sizes)
}

// test is Test.
//
// Preconditions: the connection is locked.
func (r *Request) test(sizes *Sizes) (done bool, err error) {
	if !r.busy() {
		return false, fmt.Errorf("%w: %v: request %d is not outstanding", fault.ErrUsage, r.c, r.index)
	}
	done, err = r.answer(sizes)
	if r.trace != nil {
		r.notifyWatch(done || err != nil)
	}
	return done, err
}

// TestSignal is Test of a receive of one message, which may be a brief signal: number is that of the signal, or -1 for
// any other message. If poll is false it only reports what an earlier poll has found.
func (r *Request) TestSignal(poll bool, sizes *Sizes) (done bool, number int, err error) {
	c := r.c
	if !c.TryLock() {
		return false, 0, nil
	}
	defer c.Unlock()
	if !poll && r.busy() && !r.done {
		return false, 0, nil
	}
	done, err = r.test(sizes)
	if number = -1; r.subs[0].brief {
		number = int(r.subs[0].number)
	}
	return done, number, err
}

// answer is Test of an outstanding request.
//
// Preconditions: the connection is locked.
func (r *Request) answer(sizes *Sizes) (done bool, err error) {
	c := r.c
	before := c.ending.Load() // loaded before the poll, which then finds all that came before this ending
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

// begin makes r outstanding, with n messages. C does not see it before show.
func (c *Conn) begin(r *Request, n int) {
	r.active, r.done, r.n = true, false, n
	r.gen++
	r.trace = c.newTrace()
	c.pending++
}

// show publishes on the board that r is outstanding. It must be called after the request was posted.
func (c *Conn) show(r *Request) *Request {
	c.board.Begin(r.index, r.gen)
	return r
}

// busy reports whether r is outstanding. If C has taken the result from the board, it recycles r.
func (r *Request) busy() bool {
	if r.active && r.done && r.c.board.Taken(r.index, r.gen) {
		r.active = false
		r.c.recycle(r)
	}
	return r.active
}

// releaseBuffers ends r's use of its regions, because no device uses the buffers any more.
func (r *Request) releaseBuffers() {
	for i := range r.n {
		if s := &r.subs[i]; s.region != nil {
			s.region.InUse--
			s.region = nil
		}
	}
}

// complete marks r as done, and publishes the sizes on the board. It does not publish them if Test is polling
// for r, if a lane is polled, because Test must send acknowledgements first, or if r is traced, because Test
// must notify the watch first.
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

// recycle frees a request that is not used any more. A receive needs nothing, because its slot is then free.
func (c *Conn) recycle(r *Request) {
	if c.sender != nil {
		c.sender.free = append(c.sender.free, uint16(r.index))
	}
}

// abandon releases the buffers of all outstanding requests.
//
// Preconditions: c is locked and all lanes are stopped.
func (c *Conn) abandon() {
	for i := range c.requests {
		if r := &c.requests[i]; r.active && !r.done {
			r.releaseBuffers()
		}
	}
	if c.sender != nil {
		c.sender.abandonPuts()
	}
	if r := c.receiver; r != nil {
		r.granted = 0
		r.grants.Reset()
	}
}
