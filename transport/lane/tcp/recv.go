package tcp

import (
	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
)

// incoming is the part that is arriving on the receiver's side of a socket. On an authenticated lane the part
// is divided into pieces, each with its own code; otherwise it is one piece.
type incoming struct {
	part bool      // a part is arriving
	in   dataFrame // its header
	size int       // bytes of the present piece
	left int       // bytes of the piece that have not arrived
	at   uintptr   // address of the next byte
	rest int       // bytes of the part behind the piece
	to   uintptr   // final address of a part that is staged until its code is verified; else 0
}

// readParts reads from the socket: the rest of a piece directly to its address, and the next header with up to
// readAhead bytes behind it.
func (k *socket) readParts() error {
	k.nothingToRead = false
	for budget := pollBytes; budget > 0; {
		body := min(k.left, budget)
		var n, asked int
		var errno unix.Errno
		switch {
		case body == 0:
			asked = readAhead - k.have
			n, errno = k.stream.Receive(ibv.AddrOf(&k.mem.in[k.have]), asked)
		case body < k.left:
			asked = body
			n, errno = k.stream.Receive(k.at, asked)
		default:
			asked = body + readAhead
			k.mem.iov[0] = sock.Vector{Base: k.at, Length: uint64(body)}
			k.mem.iov[1] = sock.Vector{Base: ibv.AddrOf(&k.mem.in[0]), Length: readAhead}
			k.mem.msg.Set(&k.mem.iov[0], 2)
			n, errno = k.stream.ReceiveMessage(&k.mem.msg, asked)
		}
		if isTransient(errno) {
			k.nothingToRead = budget == pollBytes
			return k.noteIdlePoll()
		}
		if k.refused != nil && n <= 0 {
			return k.refused
		}
		if errno != 0 {
			return k.wrap("receive", errno, k.at)
		}
		if n == 0 {
			return k.wrapClosed()
		}
		k.noteProgress()
		budget -= n
		k.fill(min(n, body))
		k.have += max(n-body, 0)
		if err := k.parse(); err != nil || n < asked || !k.lane.InService() {
			return err
		}
	}
	return nil
}

// fill records that the next n bytes of the piece have arrived.
func (k *socket) fill(n int) {
	k.at += uintptr(n)
	k.left -= n
}

// parse handles the bytes that were read ahead: headers, codes, and pieces short enough to have arrived with
// their header.
func (k *socket) parse() error {
	in, used := k.mem.in[:k.have], 0
	for k.lane.InService() {
		if n := min(k.left, len(in)-used); n > 0 {
			if !lane.CopyOut(k.at, in[used:used+n]) {
				return k.wrap("receive", unix.EFAULT, k.at)
			}
			used += n
			k.fill(n)
		}
		need := k.opener.size()
		if !k.part {
			need += frameHeader
		}
		if k.left > 0 || len(in)-used < need {
			break
		}
		unit := in[used : used+need]
		used += need
		var err error
		if k.part {
			err = k.endPiece(unit)
		} else {
			err = k.begin(unit)
		}
		if err != nil {
			return err
		}
	}
	k.have = copy(in, in[used:])
	return nil
}

// begin starts a part. It breaks the lane if the header is wrong or no buffer was granted for it.
func (k *socket) begin(unit []byte) error {
	head := (*[frameHeader]byte)(unit)
	if k.opener.on() {
		right, _ := k.opener.open((*[codeSize]byte)(unit[frameHeader:]), k.opener.next, head[:])
		if !right {
			return k.wrapForged("a part's header")
		}
		k.opener.next++
	}
	f := decodeData(head)
	if !f.placed() {
		return k.beginEager(f)
	}
	addr, _, ok := k.lane.Conn.Sink.Place(k.lane, f.imm, f.offset, f.length)
	if !ok { // Place has ended the connection
		k.lane.Deactivate()
		return nil
	}
	k.incoming = incoming{part: true, in: f, at: addr, rest: int(f.length)}
	if k.opener.on() && f.length <= pieceSize {
		k.to, k.at = addr, ibv.AddrOf(&k.mem.stage)
	}
	k.nextPiece()
	return nil
}

// beginEager starts an eager message or a request for grants.
func (k *socket) beginEager(f dataFrame) error {
	if _, err := f.eager(); err != nil {
		return k.wrapProtocol(err)
	}
	k.incoming = incoming{part: true, in: f, at: ibv.AddrOf(&k.mem.stage), rest: int(f.length)}
	k.nextPiece()
	return nil
}

// endPiece verifies the code of a piece that has arrived, and starts the next piece.
func (k *socket) endPiece(code []byte) error {
	if k.opener.on() {
		b := bytesAt(k.at-uintptr(k.size), k.size)
		right, ok := k.opener.open((*[codeSize]byte)(code), k.opener.next, b)
		if ok && right && k.to != 0 {
			ok = lane.CopyOut(k.to, b)
		}
		switch {
		case !ok:
			return k.wrap("receive", unix.EFAULT, k.at)
		case !right:
			return k.wrapForged("a part's bytes")
		}
		k.opener.next++
	}
	k.nextPiece()
	return nil
}

// nextPiece starts the part's next piece, or completes the part if there is none.
func (k *socket) nextPiece() {
	if k.rest > 0 {
		k.size = min(k.rest, k.opener.piece())
		k.left = k.size
		k.rest -= k.size
		return
	}
	k.part = false
	k.arrived++
	if !k.in.placed() {
		e, _ := k.in.eager() // beginEager has checked the error
		k.lane.Conn.Sink.Eager(k.lane, e, k.mem.stage[:k.in.length])
		return
	}
	k.ackDue = true
	k.lane.Conn.Sink.Arrived(k.lane, k.in.imm, int64(k.in.length))
}
