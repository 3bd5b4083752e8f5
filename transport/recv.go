package transport

import (
	"fmt"
	"math/bits"
)

// Buffer is where one message of a receive goes.
type Buffer struct {
	Addr   uintptr
	Size   int
	Tag    int32
	Region *Region
}

// RecvConn is the receive half of a connection.
type RecvConn struct {
	*conn
	requests []Request // by slot
	next     uint64    // sequence of the next receive
	granted  int       // sub-receives outstanding

	bytes, messages uint64
	waits           uint64 // receives that waited for room
}

func newRecvConn(c *conn) *RecvConn {
	r := &RecvConn{conn: c, requests: c.newRequests(maxSubs, 0), next: 1}
	c.half = r
	return r
}

// Request returns the connection's request of that index.
func (r *RecvConn) Request(i int) *Request {
	if i < 0 || i >= len(r.requests) {
		return nil
	}
	return &r.requests[i]
}

// Irecv grants bufs, at most 8, to the sender: one message each, matched by tag.
// It returns nil when the window of 256 is full; the caller tests what is
// outstanding and tries again.
func (r *RecvConn) Irecv(bufs []Buffer) (*Request, error) {
	c := r.conn
	if !c.mu.TryLock() {
		return nil, nil
	}
	defer c.mu.Unlock()
	return r.irecv(bufs)
}

func (r *RecvConn) irecv(bufs []Buffer) (*Request, error) {
	c := r.conn
	if c.ended() != nil || c.closed {
		return nil, c.over("receive")
	}
	n := len(bufs)
	if n < 1 || n > maxSubs {
		return nil, fmt.Errorf("%w: %v: receive of %d buffers; 1 to %d can be", ErrUsage, c, n, maxSubs)
	}
	for i := range bufs {
		b := &bufs[i]
		if b.Size < 0 || b.Size > 1<<32-1 || (b.Size > 0 && (b.Region == nil || b.Addr < b.Region.addr || b.Addr+uintptr(b.Size) > b.Region.addr+b.Region.length)) {
			return nil, fmt.Errorf("%w: %v: receive of %d bytes at %#x is outside the registered memory", ErrUsage, c, b.Size, b.Addr)
		}
	}
	req := &r.requests[slotOf(r.next)]
	l := r.grantLane()
	if req.active || r.granted+n > window || l == nil {
		c.poll()
		if l = r.grantLane(); req.active || r.granted+n > window || l == nil {
			r.waits++
			return nil, c.ended()
		}
	}
	for _, k := range c.lanes {
		if k.up {
			if err := k.prepare(); err != nil {
				c.fail(err)
				return nil, err
			}
		}
	}

	c.begin(req, n)
	req.left = n
	slot := c.wire.slot(r.next)
	for i := range bufs {
		b, g := &bufs[i], &slot[i]
		*g = grant{addr: uint64(b.Addr), capacity: uint32(b.Size), tag: uint32(b.Tag), n: uint8(n), sub: uint8(i), seq: r.next}
		s := &req.subs[i]
		*s = sub{addr: b.Addr, capacity: uint32(b.Size)}
		if b.Size > 0 {
			g.rkeys = b.Region.rkeys
			b.Region.inflight.Add(1)
			s.region = b.Region
		}
	}
	if err := l.sendGrant(r.next, slot[:n]); err != nil {
		req.err = err
		c.fail(err)
		return nil, err
	}
	r.next++
	r.granted += n
	return req, nil
}

// grantLane is the lane that carries the next grant, or nil: they take turns,
// but for sockets, of which the sender reads the first.
func (r *RecvConn) grantLane() *lane {
	n, from := len(r.lanes), 0
	if len(r.sockets) == 0 {
		from = int(r.next)
	}
	for i := range n {
		if l := r.lanes[(from+i)%n]; l.up && l.grantable() {
			return l
		}
	}
	return nil
}

// received accounts for a part that has arrived. Whatever the immediate says is
// checked: a peer that breaks the protocol fails its connection, nothing else.
func (r *RecvConn) received(l *lane, v uint32, size int64) {
	l.messages++
	req, s, m := r.outstanding(l, v)
	switch {
	case s == nil:
		return
	case s.seen&(1<<m.part) != 0:
		r.bad(l, v, "that part has arrived before")
		return
	case int64(s.size)+size > int64(s.capacity):
		r.bad(l, v, fmt.Sprintf("%d bytes for a buffer of %d", int64(s.size)+size, s.capacity))
		return
	}
	s.seen |= 1 << m.part
	s.size += uint32(size)
	l.bytes += uint64(size)
	if bits.OnesCount32(s.seen) <= int(s.last) {
		return
	}
	r.bytes += uint64(s.size)
	r.messages++
	r.granted--
	if req.left--; req.left == 0 {
		req.complete()
	}
}

// outstanding finds the sub-receive that an immediate names, or fails the
// connection and returns nil.
func (r *RecvConn) outstanding(l *lane, v uint32) (*Request, *sub, imm) {
	m, ok := decodeImm(v)
	req := &r.requests[m.slot]
	switch {
	case !ok:
		r.bad(l, v, "malformed")
		return nil, nil, m
	case !req.active || req.done:
		r.bad(l, v, "no receive outstanding in that slot")
		return nil, nil, m
	case int(m.sub) >= req.n:
		r.bad(l, v, fmt.Sprintf("the receive has %d buffers", req.n))
		return nil, nil, m
	}
	s := &req.subs[m.sub]
	if s.seen|s.begun == 0 {
		s.last = m.last
	}
	if s.last != m.last {
		r.bad(l, v, fmt.Sprintf("the number of parts changed from %d", s.last+1))
		return nil, nil, m
	}
	return req, s, m
}

// bad fails the connection over an immediate that the protocol does not allow.
func (r *RecvConn) bad(l *lane, v uint32, why string) {
	r.fail(fmt.Errorf("%w: %v: %v: immediate %#08x: %s", ErrProtocol, r.conn, l, v, why))
}

// failed ends the connection: every outstanding receive sees its error.
func (r *RecvConn) failed(_ *lane, _ int, err error) { r.fail(err) }

func (r *RecvConn) delivered(l *lane, _ int) {
	r.fail(fmt.Errorf("%w: %v: %v: completion of a part at the receiver", ErrInternal, r.conn, l))
}

func (r *RecvConn) recycle(*Request) {} // its slot is free with it

func (r *RecvConn) waiting() bool { return r.granted > 0 }

// subsOf calls f with every outstanding sub-receive whose buffer lies in g.
func (r *RecvConn) subsOf(g *Region, f func(*sub)) {
	for i := range r.requests {
		if q := &r.requests[i]; q.active && !q.done {
			for k := range q.subs[:q.n] {
				if s := &q.subs[k]; s.region == g {
					f(s)
				}
			}
		}
	}
}

// arriving reports whether a part for a buffer in g has begun to arrive over a
// socket and not ended.
func (r *RecvConn) arriving(g *Region) (some bool) {
	r.subsOf(g, func(s *sub) { some = some || s.begun&^s.seen != 0 })
	return some
}

// withdraw takes the buffers in g from their sub-receives.
func (r *RecvConn) withdraw(g *Region) {
	r.subsOf(g, func(s *sub) {
		s.region, s.gone = nil, true
		g.inflight.Add(-1)
	})
}

func (r *RecvConn) abandon() {
	for i := range r.requests {
		if q := &r.requests[i]; q.active && !q.done {
			q.settle()
		}
	}
	r.granted = 0
}

func (r *RecvConn) counters() (bytes, messages, waits uint64) { return r.bytes, r.messages, r.waits }
