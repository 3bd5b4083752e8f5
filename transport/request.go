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
	n      int   // buffers: 1 for a send

	sizes   [maxSubs]int
	regions [maxSubs]*Region

	// A send: parts not yet delivered and the bytes of each, by lane.
	parts int
	part  [maxParts]int

	// A receive.
	seq  uint64
	subs [maxSubs]sub
	left int // sub-receives not complete
}

// sub is what has arrived of one sub-receive.
type sub struct {
	addr     uintptr
	capacity int
	begun    uint32 // parts that have begun to arrive over a socket
	seen     uint32 // parts that have arrived
	last     uint8  // number of the last part, once one has arrived
	size     int64  // bytes of the parts seen
}

// Index is a number below 512 that no other outstanding request of the
// connection has.
func (r *Request) Index() int { return r.index }

// N is the number of buffers.
func (r *Request) N() int { return r.n }

// Size is the number of bytes sent, or received into buffer i. It holds from the
// Test that reports the request done until the next Isend or Irecv.
func (r *Request) Size(i int) int { return r.sizes[i] }

// Test reports whether the request is done. It polls the connection's devices.
// Once it has returned true, or an error, the request must not be used again.
func (r *Request) Test() (bool, error) {
	c := r.c
	if !c.mu.TryLock() {
		return false, nil
	}
	if !r.active {
		c.mu.Unlock()
		return false, fmt.Errorf("%w: %v: request %d is not outstanding", ErrUsage, c, r.index)
	}
	if !r.done {
		c.poll()
	}
	done, err := r.done, r.err
	if !done && err == nil {
		err = c.err
	}
	if done {
		c.release(r)
		err = nil
	}
	c.mu.Unlock()
	return done, err
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
		if g := r.regions[i]; g != nil {
			g.inflight.Add(-1)
			r.regions[i] = nil
		}
	}
}

// complete marks r done.
func (r *Request) complete() {
	r.done = true
	r.c.pending--
	r.settle()
}
