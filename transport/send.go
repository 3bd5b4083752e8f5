package transport

import "fmt"

// SendConn is the send half of a connection.
type SendConn struct {
	*conn
	requests []Request
	free     []uint16 // indices of requests not in use

	head    uint64 // sequence of the first grant not wholly matched
	entries int    // of that grant; 0 until all are there
	granted [maxSubs]grant
	matched uint8 // entries that a send has taken
	shares  [maxParts]share
	split   [maxParts]int

	bytes, messages uint64
	waits           uint64 // messages that waited for a grant
	waiting_        bool   // the next message has been counted in waits
	asked           uint   // times that sockets were asked for grants
	clamped         bool   // a message was larger than its grant, and that was said
}

func newSendConn(c *conn) *SendConn {
	s := &SendConn{conn: c, requests: c.newRequests(1, maxParts), head: 1, free: make([]uint16, 0, window)}
	for i := range s.requests {
		s.free = append(s.free, uint16(window-1-i))
	}
	c.half = s
	return s
}

// Request returns the connection's request of that index.
func (s *SendConn) Request(i int) *Request {
	if i < 0 || i >= len(s.requests) {
		return nil
	}
	return &s.requests[i]
}

// Isend sends size bytes at addr, which lie in r, into the buffer that the
// receiver has granted for tag. It returns nil when there is no such grant yet
// or no room to post; the caller tries again. A message larger than the grant is
// cut to its capacity, as NCCL's own transport does, and that is logged once.
//
// Messages of one tag are matched in order; tags only choose among the buffers
// of one receive.
func (s *SendConn) Isend(addr uintptr, size int, tag int32, r *Region) (*Request, error) {
	c := s.conn
	if !c.mu.TryLock() {
		return nil, nil
	}
	defer c.mu.Unlock()
	return s.isend(addr, size, tag, r)
}

func (s *SendConn) isend(addr uintptr, size int, tag int32, r *Region) (*Request, error) {
	c := s.conn
	if c.ended() != nil || c.closed {
		return nil, c.over("send")
	}
	if size < 0 || (size > 0 && (r == nil || addr < r.addr || addr+uintptr(size) > r.addr+r.length)) {
		return nil, fmt.Errorf("%w: %v: send of %d bytes at %#x is outside the registered memory", ErrUsage, c, size, addr)
	}
	g := s.match(tag)
	if g == nil && len(c.sockets) > 0 {
		s.fetchGrants()
		g = s.match(tag)
	}
	if err := c.ended(); err != nil { // in looking for it
		return nil, err
	}
	if g == nil {
		if !s.waiting_ {
			s.waiting_ = true
			s.waits++
		}
		return nil, nil
	}
	if len(s.free) == 0 {
		return nil, nil
	}
	if size > int(g.capacity) {
		if !s.clamped {
			s.clamped = true
			c.t.log.Warn("a message is larger than the buffer the receiver posted and was cut", "conn", c.String(), "size", size, "capacity", g.capacity)
		}
		size = int(g.capacity)
	}
	n, which := s.cut(size)
	if !s.room(which) {
		c.poll()
		if err := c.ended(); err != nil || !s.room(which) {
			return nil, err
		}
	}

	req := &s.requests[s.free[len(s.free)-1]]
	s.free = s.free[:len(s.free)-1]
	c.begin(req, 1)
	req.left = n
	req.subs[0].size = uint32(size)
	if size > 0 {
		req.subs[0].region = r
		r.inflight.Add(1)
	}
	m := imm{slot: slotOf(s.head), sub: g.sub, last: uint8(n - 1)}
	off := 0
	for i, l := range c.lanes {
		b := s.split[i]
		req.parts[i] = uint32(b)
		if b == 0 && i != which {
			continue
		}
		if err := l.sendPart(req, g, uint64(addr)+uint64(off), uint64(off), b, m, r); err != nil {
			req.err = err
			c.fail(err)
			return nil, err
		}
		l.backlog += int64(b)
		l.bytes += uint64(b)
		l.messages++
		off += b
		m.part++
	}
	s.take(g)
	s.waiting_ = false
	s.bytes += uint64(size)
	s.messages++
	return req, nil
}

// cut divides a message over the lanes as split does. Over sockets it stays whole
// as long as a part would be less than a system call moves, and lanes take turns:
// the kernel takes a message that has room in its buffer at once, so that the
// backlog of a lane says little.
func (s *SendConn) cut(size int) (n, which int) {
	threshold := s.t.opts.StripeThreshold
	if len(s.sockets) > 0 {
		threshold = len(s.lanes) * max(threshold, pollBytes)
		if which = s.turn(size); size < threshold && which >= 0 {
			clear(s.split[:])
			s.split[which] = size
			return 1, which
		}
	}
	for i, l := range s.lanes {
		s.shares[i] = share{backlog: l.backlog}
		if l.up {
			s.shares[i].weight = l.weight
		}
	}
	return split(size, s.shares[:len(s.lanes)], threshold, s.split[:])
}

// turn returns the lane without a backlog that will then have carried the least
// for its weight, or -1.
func (s *SendConn) turn(size int) int {
	which, least := -1, 0.0
	for i, l := range s.lanes {
		if !l.up || l.backlog > 0 {
			continue
		}
		if used := float64(l.bytes+uint64(size)) / l.weight; which < 0 || used < least {
			which, least = i, used
		}
	}
	return which
}

// match returns the first entry of the head grant that tag fits and no send has
// taken, or nil.
func (s *SendConn) match(tag int32) *grant {
	if s.entries == 0 {
		s.entries = s.readGrant()
	}
	for i := range s.entries {
		if g := &s.granted[i]; s.matched&(1<<i) == 0 && int32(g.tag) == tag {
			return g
		}
	}
	return nil
}

// readGrant copies the head grant's entries once all are there, and returns their
// number. The peer can write the ring at any time: the copy is what is checked and
// used, and nothing is read from the ring again.
func (s *SendConn) readGrant() int {
	slot, n := s.wire.slot(s.head), 1
	for i := 0; i < n; i++ {
		g := &s.granted[i]
		if !g.copyFrom(&slot[i], s.head) {
			return 0
		}
		if i == 0 {
			n = int(g.n)
		}
		if n < 1 || n > maxSubs || int(g.n) != n || int(g.sub) != i {
			s.fail(fmt.Errorf("%w: %v: grant %d: entry %d says that it is %d of %d", ErrProtocol, s.conn, s.head, i, g.sub, g.n))
			return 0
		}
	}
	return n
}

// take marks a grant used; when all of its slot are, the head moves on.
func (s *SendConn) take(g *grant) {
	s.matched |= 1 << g.sub
	if s.matched == 1<<s.entries-1 {
		s.matched, s.entries = 0, 0
		s.head++
	}
}

// room reports whether every lane can take its part.
func (s *SendConn) room(which int) bool {
	for i, l := range s.lanes {
		if b := s.split[i]; b > 0 || i == which {
			ok, err := l.room(b)
			if err != nil {
				s.fail(err)
			}
			if !ok {
				return false
			}
		}
	}
	return true
}

// delivered counts a part that has reached the peer.
func (s *SendConn) delivered(l *lane, request int) {
	if request >= len(s.requests) || !s.requests[request].active {
		s.fail(fmt.Errorf("%w: %v: completion for request %d, which is not outstanding", ErrInternal, s.conn, request))
		return
	}
	req := &s.requests[request]
	l.backlog -= int64(req.parts[l.index])
	if req.left--; req.left == 0 {
		req.complete()
	}
}

// failed gives an error to the request it belongs to and ends the connection.
func (s *SendConn) failed(l *lane, request int, err error) {
	if request >= 0 && request < len(s.requests) {
		if r := &s.requests[request]; r.active && r.err == nil {
			r.err = err
		}
	}
	s.fail(err)
}

func (s *SendConn) received(l *lane, imm uint32, _ int64) {
	s.fail(fmt.Errorf("%w: %v: %v: data came to the sender, immediate %#08x", ErrProtocol, s.conn, l, imm))
}

func (s *SendConn) waiting() bool { return false }

func (s *SendConn) recycle(r *Request) { s.free = append(s.free, uint16(r.index)) }

func (s *SendConn) abandon() {
	for i := range s.requests {
		if r := &s.requests[i]; r.active && !r.done {
			r.settle()
		}
	}
}

func (s *SendConn) counters() (bytes, messages, waits uint64) { return s.bytes, s.messages, s.waits }
