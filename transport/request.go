package transport

import "fmt"

// Request is an outstanding send or receive. It belongs to its connection, which
// uses it again once Test has reported it done.
type Request struct {
	c      *conn
	index  int
	active bool
	done   bool
	err    error // of its own work requests
	n      int   // messages: 1 for a send
	left   int   // parts of a send, or sub-receives, that are not complete

	subs  []sub    // of each message; as many as a request of this half can have
	parts []uint32 // of a send: the bytes of its part on each lane
}

// sub is one message of a request: what is sent, or what has arrived of a
// sub-receive. A connection has two thousand of them.
type sub struct {
	addr     uintptr // of a receive's buffer
	region   *Region // that it lies in, while a device may use it
	capacity uint32
	size     uint32 // bytes sent, or of the parts seen
	begun    uint32 // parts that have begun to arrive over a socket
	seen     uint32 // parts that have arrived
	last     uint8  // number of the last part, once one has arrived
	gone     bool   // the buffer was deregistered
}

// newRequests makes the requests of a half, each of up to subs messages in up to
// parts parts.
func (c *conn) newRequests(subs, parts int) []Request {
	all := make([]Request, window)
	s, p := make([]sub, window*subs), make([]uint32, window*parts)
	for i := range all {
		all[i] = Request{
			c: c, index: i,
			subs: s[i*subs : (i+1)*subs : (i+1)*subs], parts: p[i*parts : (i+1)*parts : (i+1)*parts],
		}
	}
	return all
}

// Index is a number below 512 that no other outstanding request of the
// connection has.
func (r *Request) Index() int { return r.index }

// N is the number of buffers.
func (r *Request) N() int { return r.n }

// Size is the number of bytes sent, or received into buffer i. It holds from the
// Test that reports the request done until the next Isend or Irecv.
func (r *Request) Size(i int) int { return int(r.subs[i].size) }

// Test reports whether the request is done. It polls the connection's devices.
// Once it has returned true, or an error, the request must not be used again.
func (r *Request) Test() (bool, error) {
	c := r.c
	if !c.mu.TryLock() {
		return false, nil
	}
	defer c.mu.Unlock()
	if !r.active {
		return false, fmt.Errorf("%w: %v: request %d is not outstanding", ErrUsage, c, r.index)
	}
	before := c.ending.Load() // what came before the end is found
	if !r.done || c.owes() {
		c.poll()
	}
	switch {
	case !r.done:
		return false, c.verdictOn(r, before)
	case c.owes():
		return false, nil
	}
	c.release(r)
	return true, nil
}

// begin makes r outstanding with n buffers.
func (c *conn) begin(r *Request, n int) {
	r.active, r.done, r.err, r.n = true, false, nil, n
	c.pending++
}

// release makes r, which is done, free again.
func (c *conn) release(r *Request) {
	r.active = false
	c.half.recycle(r)
}

// settle drops r's hold on its buffers: no device uses them any more.
func (r *Request) settle() {
	for i := range r.n {
		if s := &r.subs[i]; s.region != nil {
			s.region.inflight.Add(-1)
			s.region = nil
		}
	}
}

// complete marks r done.
func (r *Request) complete() {
	r.done = true
	r.c.pending--
	r.settle()
}
