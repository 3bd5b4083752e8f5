package transport

import (
	"fmt"
	"time"

	"ncclmesh/ibv"
)

// sendPart queues a part. When nothing waits before it the kernel is given it at
// once.
func (k *socket) sendPart(req *Request, _ *grant, local, off uint64, b int, m imm, _ *Region) error {
	i := (k.first + k.count) % window
	k.parts[i] = outgoing{req.index, uintptr(local), b}
	dataFrame{m.encode(), uint32(b), off}.encode(&k.mem.heads[i])
	if k.count++; k.count > 1 {
		return nil
	}
	return k.flushParts()
}

// flushParts gives the kernel what it takes.
func (k *socket) flushParts() error {
	for budget := pollBytes; k.count > 0 && budget > 0; {
		total := k.gather(budget)
		n, errno := sendMsg(k.fd, &k.mem.msg, total)
		if again(errno) {
			return k.missed()
		}
		if errno != 0 {
			return k.wrap("send", errno, k.parts[k.first].local)
		}
		k.moved()
		budget -= n
		k.accepted(n)
		if n < total {
			return nil // its buffer is full
		}
	}
	return nil
}

// gather points the message at the next bytes to send, about limit at most, and
// returns their number.
func (k *socket) gather(limit int) (total int) {
	iov, skip := k.mem.iov[:0], k.sent
	for i := 0; i < min(k.count, sendBatch) && total < limit; i++ {
		at := (k.first + i) % window
		p := &k.parts[at]
		if skip < dataHeader {
			iov = append(iov, iovec{ibv.AddrOf(&k.mem.heads[at][skip]), uint64(dataHeader - skip)})
			total += dataHeader - skip
			skip = dataHeader
		}
		done := skip - dataHeader
		if b := min(p.size-done, limit-total); b > 0 {
			iov = append(iov, iovec{p.local + uintptr(done), uint64(b)})
			total += b
			if done+b < p.size {
				break
			}
		} else if done < p.size {
			break // the header has used the limit up
		}
		skip = 0
	}
	k.mem.msg.iov, k.mem.msg.iovLen = ibv.AddrOf(&k.mem.iov[0]), uint64(len(iov))
	return total
}

// accepted notes that the kernel has the next n bytes.
func (k *socket) accepted(n int) {
	k.sent += n
	for k.count > 0 {
		p := &k.parts[k.first]
		if k.sent < dataHeader+p.size {
			return
		}
		k.sent -= dataHeader + p.size
		k.first = (k.first + 1) % window
		k.count--
		k.conn.half.delivered(k.lane, p.request)
	}
}

// fetchGrants looks for grants. They come over the first lane in service; of the
// others one at a time is asked whether it still stands.
//
// Preconditions: c.mu is held.
func (s *SendConn) fetchGrants() {
	if len(s.sockets) == 0 {
		return
	}
	s.asked++
	other := int(s.asked) % len(s.sockets)
	first := true
	for i, k := range s.sockets {
		if !k.up || !first && i != other {
			continue
		}
		first = false
		if err := k.readGrants(); err != nil {
			k.broken(err)
			return
		}
	}
}

// readGrants puts grants that have arrived into the ring.
func (k *socket) readGrants() error {
	for {
		in := k.mem.in[:]
		n, errno := recvFrom(k.fd, ibv.AddrOf(&in[k.have]), len(in)-k.have)
		if again(errno) {
			return k.missed()
		}
		if errno != 0 {
			return k.wrap("receive", errno, 0)
		}
		if n == 0 {
			return k.wrapEnd()
		}
		k.moved()
		k.have += n
		used, err := k.takeGrants(in[:k.have])
		if err != nil {
			return fmt.Errorf("%w: %v: %v: %w", ErrProtocol, k.conn, k.lane, err)
		}
		short := k.have < len(in)
		k.have = copy(in, in[used:k.have])
		if short {
			return nil
		}
	}
}

// takeGrants stores the whole grants in b as a device would have, sequence last,
// and returns how many bytes they are.
func (k *socket) takeGrants(b []byte) (used int, err error) {
	s := k.conn.half.(*SendConn)
	for {
		var entries [maxSubs]grant
		seq, n, length, err := decodeGrant(b[used:], &entries)
		if err != nil || length == 0 {
			return used, err
		}
		slot := k.conn.wire.slot(seq)
		if seq-s.head >= window || slot[0].seq >= seq {
			return used, fmt.Errorf("grant %d is out of turn; %d is next", seq, s.head)
		}
		for i := range n {
			slot[i] = entries[i]
			slot[i].seq = seq
		}
		used += length
	}
}

// awaitDelivery waits until the peer's kernel has everything that this side has
// sent, so that a Bye does not overtake it. It gives up when the peer is gone,
// and soon once the process ends.
func (c *conn) awaitDelivery() {
	closing := c.t.closing
	var patience <-chan time.Time
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		c.mu.Lock()
		left := 0
		for _, k := range c.sockets {
			if k.up {
				if n, err := queuedBytes(k.fd); err == nil {
					left += n
				}
			}
		}
		c.mu.Unlock()
		if left == 0 {
			return
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-closing:
			closing, patience = nil, time.After(c.t.opts.scaled(lingerTime))
		case <-patience:
			next.Stop()
			return
		case <-c.bye:
			next.Stop()
			return
		}
		next.Stop()
	}
}
