package transport

import (
	"fmt"

	"golang.org/x/sys/unix"

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
	n, errno := sendTo(k.fd, ibv.AddrOf(&k.mem.out[k.outHead]), k.outTail-k.outHead)
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

// readParts reads what has arrived: the rest of a part straight into its buffer,
// and behind it, or alone, the next header with a little of what follows. When
// the connection is over, which the peer says once its last byte has been
// acknowledged, it reads all there is.
func (k *socket) readParts() error {
	for budget := pollBytes; budget > 0 || k.conn.err != nil; {
		body := k.left
		if k.conn.err == nil {
			body = min(body, budget)
		}
		var n, asked int
		var errno unix.Errno
		switch {
		case body == 0:
			asked = readAhead - k.have
			n, errno = recvFrom(k.fd, ibv.AddrOf(&k.mem.in[k.have]), asked)
		case body < k.left:
			asked = body
			n, errno = recvFrom(k.fd, k.at, asked)
		default:
			asked = body + readAhead
			k.mem.iov[0] = iovec{k.at, uint64(body)}
			k.mem.iov[1] = iovec{ibv.AddrOf(&k.mem.in[0]), readAhead}
			k.mem.msg.iov, k.mem.msg.iovLen = ibv.AddrOf(&k.mem.iov[0]), 2
			n, errno = recvMsg(k.fd, &k.mem.msg, asked)
		}
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
		if body > 0 {
			k.filled(min(n, body))
		}
		k.have += max(n-body, 0)
		if err := k.digest(); err != nil || n < asked || !k.up {
			return err
		}
	}
	return nil
}

// digest takes in what was read ahead: headers, and parts that are short enough
// to have come with theirs.
func (k *socket) digest() error {
	in, used := k.mem.in[:k.have], 0
	for k.up {
		if n := min(k.left, len(in)-used); n > 0 {
			if !copyOut(k.at, in[used:used+n]) {
				return k.wrap("receive", unix.EFAULT, k.at)
			}
			used += n
			k.filled(n)
		}
		if len(in)-used < dataHeader {
			break
		}
		k.begin(decodeData((*[dataHeader]byte)(in[used:])))
		used += dataHeader
	}
	k.have = copy(in, in[used:])
	return nil
}

// filled notes that the part's next n bytes have arrived.
func (k *socket) filled(n int) {
	k.at += uintptr(n)
	if k.left -= n; k.left == 0 {
		k.conn.half.received(k.lane, k.in.imm, int64(k.in.length))
	}
}

// begin starts a part, if there is a buffer for it; otherwise the lane is out of
// service.
func (k *socket) begin(f dataFrame) {
	addr, ok := k.conn.half.(*RecvConn).admit(k.lane, f)
	if !ok {
		k.up = false
		return
	}
	k.in, k.at, k.left = f, addr, int(f.length)
	if f.length == 0 {
		k.conn.half.received(k.lane, f.imm, 0)
	}
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
