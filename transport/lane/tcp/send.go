package tcp

import (
	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
)

// pieceCodes is the number of codes of pieces that are kept: more than can lie between the first piece that the
// kernel has not accepted and the last that one system call can send.
const pieceCodes = 8 * sendBatch

// shortFrame is the length of a part of shortPart bytes with its header and the codes of both.
const shortFrame = frameHeader + codeSize + shortPart + codeSize

// outgoing holds the parts on the sender's side of a socket, from when they are posted until they are
// delivered.
type outgoing struct {
	parts       [lane.Window]sentPart // a ring
	oldest      int                   // index in the ring of the first part that is not delivered
	accepted    int                   // parts from oldest on that the kernel has accepted completely
	queued      int                   // parts behind those
	sent        int                   // bytes of the first queued part's frame that the kernel has accepted
	delivered   uint64                // parts that have been delivered
	nextSealed  uint64                // 1 + number of the last code of a piece that has been computed
	eagerQueued int                   // eager messages among the queued parts
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

// Send queues a part, and sends it at once if no other part is queued before it.
func (k *socket) Send(p *lane.Part) error {
	i := (k.oldest + k.accepted + k.queued) % lane.Window
	k.parts[i] = sentPart{p.Request, int(p.Imm.Part), p.Local, p.Size, k.sealer.next, p.Eager != nil}
	k.sealer.next += uint64(k.sealer.codes(p.Size))
	head := &k.mem.heads[i]
	code, offset := p.PlacedHeader()
	f := dataFrame{code, uint32(p.Size), offset}
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

// Reaches returns true, because the receiver copies arriving parts itself.
func (k *socket) Reaches(*lane.Grant) bool { return true }

// Room reports whether the window has a free place.
func (k *socket) Room(int) (bool, error) { return k.accepted+k.queued < lane.Window, nil }

// Delivering reports whether parts are outstanding, because acknowledgements on a socket arrive before its end
// of file.
func (k *socket) Delivering(bool) bool { return k.lane.InService() && k.accepted+k.queued > 0 }

// flushParts sends queued parts until the kernel accepts no more or pollBytes are sent.
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
			return nil // the kernel's buffer is full
		}
	}
	return nil
}

// sendSome makes one system call that sends about limit bytes at most. It returns how many bytes it offered
// (total) and how many the kernel accepted (n).
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

// first returns the first part that the kernel has not accepted completely.
func (k *socket) first() *sentPart { return &k.parts[(k.oldest+k.accepted)%lane.Window] }

// join copies the first part behind its header, with both codes, into mem.short and returns the length. It
// returns false if the part's memory is not mapped.
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

// gather points mem.msg at the next bytes to send, about limit at most, and returns their number. It returns
// false if it has to compute a code over memory that is not mapped.
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

// gatherBody appends the bytes of a part and their codes, without the first skip bytes, to iov as long as there
// is room. whole reports whether all of them were appended; ok is false if memory is not mapped.
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

// accept records that the kernel has accepted the next n bytes.
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
