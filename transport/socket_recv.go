package transport

import (
	"fmt"

	"ncclmesh/ibv"
)

// sendGrant queues a grant and gives the kernel what it takes.
func (k *socket) sendGrant(seq uint64, entries []grant) error {
	out := k.mem.out[:]
	if len(out)-k.outTail < maxGrant {
		k.outTail = copy(out, out[k.outHead:k.outTail])
		k.outHead = 0
	}
	k.outTail += encodeGrant(out[k.outTail:], seq, entries)
	return k.flushGrants()
}

// flushGrants gives the kernel the grants that wait.
func (k *socket) flushGrants() error {
	k.mem.iov[0] = iovec{ibv.AddrOf(&k.mem.out[k.outHead]), uint64(k.outTail - k.outHead)}
	k.mem.msg.iov, k.mem.msg.iovLen = ibv.AddrOf(&k.mem.iov[0]), 1
	n, errno := sendMsg(k.fd, &k.mem.msg)
	if again(errno) {
		return k.missed()
	}
	if errno != 0 {
		return k.wrap("send a grant", errno, 0)
	}
	k.moved()
	if k.outHead += n; k.outHead == k.outTail {
		k.outHead, k.outTail = 0, 0
	}
	return nil
}

// readParts reads what has arrived: the rest of a part, straight into its buffer,
// together with the next part's header. When the connection is over, which the
// peer says once its last byte has been acknowledged, it reads all there is.
func (k *socket) readParts() error {
	head := (*[dataHeader]byte)(k.mem.in[:])
	for budget := pollBytes; budget > 0 || k.conn.err != nil; {
		iov := k.mem.iov[:0]
		body, rest := k.left, dataHeader-k.have
		if k.conn.err == nil && body > budget {
			body, rest = budget, 0
		}
		if body > 0 {
			iov = append(iov, iovec{k.at, uint64(body)})
		}
		if rest > 0 {
			iov = append(iov, iovec{ibv.AddrOf(&head[k.have]), uint64(rest)})
		}
		k.mem.msg.iov, k.mem.msg.iovLen = ibv.AddrOf(&k.mem.iov[0]), uint64(len(iov))
		n, errno := recvMsg(k.fd, &k.mem.msg)
		if again(errno) {
			return k.missed()
		}
		if errno != 0 {
			return k.wrap("receive", errno, k.at)
		}
		if n == 0 {
			return k.wrapEnd()
		}
		k.moved()
		budget -= n
		short := n < body+rest
		if body > 0 {
			got := min(n, body)
			k.at += uintptr(got)
			k.left -= got
			n -= got
			if k.left == 0 {
				k.conn.half.received(k.lane, k.in.imm, int64(k.in.length))
			}
		}
		k.have += n
		if k.have == dataHeader {
			k.have = 0
			if !k.begin(decodeData(head)) {
				return nil
			}
		}
		if short {
			return nil
		}
	}
	return nil
}

// begin starts a part, if there is a buffer for it. It reports false when the
// lane is out of service.
func (k *socket) begin(f dataFrame) bool {
	addr, ok := k.conn.half.(*RecvConn).admit(k.lane, f)
	if !ok {
		k.up = false
		return false
	}
	k.in, k.at, k.left = f, addr, int(f.length)
	if f.length == 0 {
		k.conn.half.received(k.lane, f.imm, 0)
	}
	return true
}

// admit says where a part goes that is about to arrive. Everything is checked
// before a byte of it is read: a peer that breaks the protocol fails its
// connection, and nothing lands outside what was granted.
func (r *RecvConn) admit(l *lane, f dataFrame) (addr uintptr, ok bool) {
	_, s, m := r.outstanding(l, f.imm)
	switch {
	case s == nil:
		return 0, false
	case m.writes != 0:
		r.bad(l, f.imm, "plain writes over TCP")
		return 0, false
	case (s.begun|s.seen)&(1<<m.part) != 0:
		r.bad(l, f.imm, "that part has begun before")
		return 0, false
	case f.offset > uint64(s.capacity) || uint64(f.length) > uint64(s.capacity)-f.offset:
		r.bad(l, f.imm, fmt.Sprintf("%d bytes at %d for a buffer of %d", f.length, f.offset, s.capacity))
		return 0, false
	}
	s.begun |= 1 << m.part
	return s.addr + uintptr(f.offset), true
}
