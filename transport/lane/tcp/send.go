package tcp

import (
	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
)

// pieceCodes is how many codes of pieces are kept: more than lie between the first
// that the kernel does not have and the last that one system call can name.
const pieceCodes = 8 * sendBatch

// shortFrame is a part of shortPart with its header, and the codes of both.
const shortFrame = frameHeader + codeSize + shortPart + codeSize

// outgoing is the sender's side of a socket: its parts, from when they are posted
// until they are delivered.
type outgoing struct {
	parts       [lane.Window]sentPart // a ring
	oldest      int                   // of the ring: the first part that is not delivered
	accepted    int                   // parts from there of which the kernel has every byte
	queued      int                   // parts behind those
	sent        int                   // bytes of the first of them, and its frame, that the kernel has
	delivered   uint64                // parts so far
	nextSealed  uint64                // number of the last piece that has its code, and one
	eagerQueued int                   // eager messages among those queued
}

// sentPart is a part that is not delivered.
type sentPart struct {
	request int
	part    int
	local   uintptr
	size    int
	code    uint64 // number of its header's code
	eager   bool
}

// Send queues a part. When nothing waits before it the kernel is given it at once.
func (k *socket) Send(p *lane.Part) error {
	i := (k.oldest + k.accepted + k.queued) % lane.Window
	k.parts[i] = sentPart{p.Request, int(p.Imm.Part), p.Local, p.Size, k.sealer.next, p.Eager != nil}
	k.sealer.next += uint64(k.sealer.codes(p.Size))
	head := &k.mem.heads[i]
	f := dataFrame{p.Imm.Encode(), uint32(p.Size), p.Offset}
	if p.Eager != nil {
		f = eagerFrame(p.Eager, p.Size)
		k.eagerQueued++
	}
	f.encode((*[frameHeader]byte)(head[:]))
	if k.sealer.on() {
		k.sealer.seal((*[codeSize]byte)(head[frameHeader:]), k.parts[i].code, head[:frameHeader])
	}
	if k.queued++; k.queued > 1 {
		return nil
	}
	return k.flushParts()
}

// Reaches is true: the receiver places what comes.
func (k *socket) Reaches(*lane.Grant) bool { return true }

// Room reports whether the window has a place.
func (k *socket) Room(int) (bool, error) { return k.accepted+k.queued < lane.Window, nil }

// Delivering reports whether parts are outstanding: over a socket, acknowledgements
// come before its end.
func (k *socket) Delivering(bool) bool { return k.lane.InService() && k.accepted+k.queued > 0 }

// flushParts gives the kernel what it takes.
func (k *socket) flushParts() error {
	for budget := pollBytes; k.queued > 0 && budget > 0; {
		total, n, errno := k.sendSome(budget)
		if isTransient(errno) {
			return k.noteIdlePoll()
		}
		if errno != 0 {
			return k.wrap("send", errno, k.first().local)
		}
		k.noteProgress()
		budget -= n
		k.accept(n)
		if n < total {
			return nil // its buffer is full
		}
	}
	return nil
}

// give gives the kernel the next bytes to send, about limit at most: n of total.
func (k *socket) sendSome(limit int) (total, n int, errno unix.Errno) {
	var ok bool
	if k.queued == 1 && k.sent == 0 && k.first().size <= shortPart {
		if total, ok = k.join(); ok {
			n, errno = k.stream.Send(ibv.AddrOf(&k.mem.short[0]), total)
		}
	} else if total, ok = k.gather(limit); ok {
		n, errno = k.stream.SendMessage(&k.mem.msg, total)
	}
	if !ok {
		errno = unix.EFAULT
	}
	return total, n, errno
}

// first is the first part of which the kernel lacks bytes.
func (k *socket) first() *sentPart { return &k.parts[(k.oldest+k.accepted)%lane.Window] }

// join copies the first part behind its header, and their codes, and returns how many
// bytes that is. It reports false when the part is not mapped.
func (k *socket) join() (total int, ok bool) {
	at, code := (k.oldest+k.accepted)%lane.Window, k.sealer.size()
	p, b := &k.parts[at], &k.mem.short
	total = copy(b[:], k.mem.heads[at][:frameHeader+code])
	body := b[total : total+p.size]
	if !lane.CopyIn(body, p.local) {
		return 0, false
	}
	total += p.size
	if code > 0 && p.size > 0 {
		number := p.code + 1
		sealed := &k.mem.codes[number%pieceCodes]
		if number >= k.nextSealed {
			if !k.sealer.seal(sealed, number, body) {
				return 0, false
			}
			k.nextSealed = number + 1
		}
		total += copy(b[total:], sealed[:])
	}
	return total, true
}

// gather points the message at the next bytes to send, about limit at most, and
// returns their number. It reports false when some of them are not mapped, where it
// is the one who would read them.
func (k *socket) gather(limit int) (total int, ok bool) {
	iov, skip := k.mem.iov[:0], k.sent
	head := frameHeader + k.sealer.size()
	for i := 0; i < min(k.queued, sendBatch) && total < limit && len(iov)+2 < cap(iov); i++ {
		at := (k.oldest + k.accepted + i) % lane.Window
		if skip < head {
			iov = append(iov, sock.Vector{Base: ibv.AddrOf(&k.mem.heads[at][skip]), Length: uint64(head - skip)})
			total += head - skip
			skip = head
		}
		var whole bool
		if iov, whole, ok = k.gatherBody(iov, &k.parts[at], skip-head, limit, &total); !ok {
			return 0, false
		}
		if !whole {
			break
		}
		skip = 0
	}
	k.mem.msg.Set(&k.mem.iov[0], len(iov))
	return total, true
}

// gatherBody appends the bytes of a part and their codes, but for the first skip,
// as long as there is room, and reports whether that is all of them.
func (k *socket) gatherBody(iov []sock.Vector, p *sentPart, skip, limit int, total *int) (_ []sock.Vector, whole, ok bool) {
	piece, code := k.sealer.piece(), k.sealer.size()
	j := skip / (piece + code)
	skip -= j * (piece + code)
	for ; j*piece < p.size; j++ {
		if *total >= limit || len(iov)+2 > cap(iov) {
			return iov, false, true
		}
		addr, b := p.local+uintptr(j*piece), min(p.size-j*piece, piece)
		number := p.code + 1 + uint64(j)
		if code > 0 && number >= k.nextSealed {
			if !k.sealer.seal(&k.mem.codes[number%pieceCodes], number, bytesAt(addr, b)) {
				return iov, false, false
			}
			k.nextSealed = number + 1
		}
		if n := min(b-skip, limit-*total); n > 0 {
			iov = append(iov, sock.Vector{Base: addr + uintptr(skip), Length: uint64(n)})
			*total += n
			skip += n
		}
		if skip < b {
			return iov, false, true
		}
		if code > 0 {
			skip -= b
			iov = append(iov, sock.Vector{Base: ibv.AddrOf(&k.mem.codes[number%pieceCodes][skip]), Length: uint64(code - skip)})
			*total += code - skip
		}
		skip = 0
	}
	return iov, true, true
}

// accept notes that the kernel has the next n bytes.
func (k *socket) accept(n int) {
	k.sent += n
	for k.queued > 0 {
		size := k.first().size
		frame := frameHeader + size + k.sealer.codes(size)*codeSize
		if k.sent < frame {
			return
		}
		k.sent -= frame
		if k.first().eager {
			k.eagerQueued--
		}
		k.accepted++
		k.queued--
	}
}
