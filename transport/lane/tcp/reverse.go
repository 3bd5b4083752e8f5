package tcp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// reverseStream is the receiver's output: grants, acknowledgements of parts, and reports of matched eager
// messages.
type reverseStream struct {
	arrived          uint64 // parts that have arrived
	acked            uint64 // parts that have been acknowledged
	ackDue           bool   // a part that is not an eager message has arrived and is not acknowledged
	nothingToRead    bool   // the last poll found nothing to read
	outHead, outTail int    // bounds of the bytes in mem.out that the kernel has not accepted
	refused          error  // why the peer accepts no further frames
}

// SendGrant queues a grant, behind an acknowledgement of the parts that have arrived, and sends what the kernel
// accepts.
func (k *socket) SendGrant(seq uint64, entries []lane.Grant, again bool) error {
	if again { // the sender's processor detects a grant that comes too late
		k.lane.Conn.Sink.Regranted(k.lane, lane.SlotOf(seq))
	}
	if err := k.reserve(); err != nil {
		return err
	}
	k.putAck()
	k.put(reverseFrame{kind: kindGrant, n: uint8(len(entries)), number: seq}, entries)
	return k.flushReverse()
}

// PutMatch queues the report of an eager message, behind an acknowledgement of the parts that have arrived.
func (k *socket) PutMatch(t lane.EagerMatch) error {
	if err := k.reserve(); err != nil {
		return err
	}
	k.putAck()
	k.put(reverseFrame{kindMatched, t.N, t.Sub, t.Seq, t.Number}, nil)
	return nil
}

// FlushMatches sends what the kernel accepts.
func (k *socket) FlushMatches() error { return k.flushReverse() }

// reserve makes room for two frames. It fails if the sender does not read the reverse stream but sends more
// than it was granted.
func (k *socket) reserve() error {
	out := k.mem.out[:]
	if len(out)-k.outTail < 2*maxReverseFrame {
		k.outTail = copy(out, out[k.outHead:k.outTail])
		k.outHead = 0
	}
	if n := len(out) - k.outTail; n < 2*maxReverseFrame {
		return k.wrapProtocol(fmt.Errorf("%d bytes of grants and acknowledgements wait for the sender to read them", k.outTail))
	}
	return nil
}

// acknowledge sends an acknowledgement of the parts that have arrived if one is due: after ackEvery parts, when
// no further bytes can be read, and at once when no receive is outstanding, because NCCL may not call again. In
// other cases the next grant may carry the acknowledgement.
func (k *socket) acknowledge(idle bool) error {
	if !k.lane.InService() || !k.ackDue || k.outHead < k.outTail || !idle && !k.nothingToRead && k.arrived-k.acked < ackEvery {
		return nil
	}
	k.putAck()
	if k.outHead == k.outTail {
		return nil
	}
	return k.flushReverse()
}

// HasPendingOutput reports whether an acknowledgement is due, or bytes are queued that the kernel has not
// accepted and that no request waits for.
func (k *socket) HasPendingOutput() bool {
	if k.lane.Conn.Sending {
		return k.eagerQueued > 0 && k.lane.InService()
	}
	return k.lane.InService() && (k.ackDue || k.outHead < k.outTail)
}

// Grantable returns true, because the queue has room for all grants that can be outstanding.
func (k *socket) Grantable() bool { return true }

// Prepare does nothing: sockets post no receives.
func (k *socket) Prepare() error { return nil }

// Fetch sends queued parts, because the receiver may need them before it grants more, and reads the reverse
// stream.
func (k *socket) Fetch() {
	err := k.flushParts()
	if err == nil {
		err = k.readReverse()
	}
	if err != nil {
		k.lane.Break(err)
	}
}

// putAck queues an acknowledgement, unless all parts are acknowledged or frames are already queued: beside all
// grants the queue has room for one acknowledgement.
func (k *socket) putAck() {
	if k.acked != k.arrived && k.outHead == k.outTail {
		k.acked, k.ackDue = k.arrived, false
		k.put(reverseFrame{kind: kindAck, number: k.acked}, nil)
	}
}

// put appends a frame to the queue.
func (k *socket) put(f reverseFrame, entries []lane.Grant) {
	out := k.mem.out[k.outTail:]
	f.encode((*[frameHeader]byte)(out))
	n := k.putCode(out, 0, frameHeader)
	if len(entries) > 0 {
		n = k.putCode(out, n, n+encodeBuffers(out[n:], entries))
	}
	k.outTail += n
}

// putCode writes the code of b[from:to] at b[to:] and returns the end of the code; it returns to if the lane is
// not authenticated.
func (k *socket) putCode(b []byte, from, to int) int {
	if !k.sealer.on() {
		return to
	}
	k.sealer.seal((*[codeSize]byte)(b[to:]), k.sealer.next, b[from:to])
	k.sealer.next++
	return to + codeSize
}

// flushReverse sends the queued frames. If the peer has closed the lane it discards them and keeps the error in
// refused: the peer may have sent parts before it closed the lane, and the lane fails only when those have been
// read.
func (k *socket) flushReverse() error {
	if k.refused != nil {
		k.outHead, k.outTail = 0, 0
		return nil
	}
	n, errno := k.stream.Send(ibv.AddrOf(&k.mem.out[k.outHead]), k.outTail-k.outHead)
	if isTransient(errno) {
		return k.noteIdlePoll()
	}
	if errno == unix.ECONNRESET || errno == unix.EPIPE {
		k.refused = k.wrap("send a grant", errno, 0)
		k.outHead, k.outTail = 0, 0
		return nil
	}
	if errno != 0 {
		return k.wrap("send a grant", errno, 0)
	}
	k.noteProgress()
	if k.outHead += n; k.outHead == k.outTail {
		k.outHead, k.outTail = 0, 0
	}
	return nil
}

// readReverse reads the receiver's frames.
func (k *socket) readReverse() error {
	for {
		in := k.mem.in[:]
		n, errno := k.stream.Receive(ibv.AddrOf(&in[k.have]), len(in)-k.have)
		if isTransient(errno) {
			return k.noteIdlePoll()
		}
		if errno != 0 {
			return k.wrap("receive", errno, 0)
		}
		if n == 0 {
			return k.wrapClosed()
		}
		k.noteProgress()
		k.have += n
		used, err := k.handleReverse(in[:k.have])
		if err != nil {
			return err
		}
		short := k.have < len(in)
		k.have = copy(in, in[used:k.have])
		if short {
			return nil
		}
	}
}

// handleReverse handles the complete frames in b and returns their length.
func (k *socket) handleReverse(b []byte) (used int, err error) {
	code := k.opener.size()
	for len(b)-used >= frameHeader+code {
		head, rest := (*[frameHeader]byte)(b[used:]), b[used+frameHeader+code:]
		if !k.codeMatches(k.opener.next, head[:], b[used+frameHeader:]) {
			return used, k.wrapForged("a grant's or acknowledgement's header")
		}
		f, err := decodeReverse(head)
		if err != nil {
			return used, k.wrapProtocol(err)
		}
		used += frameHeader + code
		if size := f.buffers() * grantBuffer; size > 0 {
			if len(rest) < size+code {
				return used - frameHeader - code, nil // the header is decoded again with the rest of the frame
			}
			if !k.codeMatches(k.opener.next+1, rest[:size], rest[size:]) {
				return used, k.wrapForged("a grant")
			}
			used += size + code
		}
		k.opener.next += uint64(k.opener.codes(f.buffers() * grantBuffer))
		switch f.kind {
		case kindAck:
			err = k.acknowledged(f.number)
		case kindMatched:
			err = k.lane.Conn.Sink.EagerMatched(lane.EagerMatch{Number: f.number, Seq: f.seq, Sub: f.sub, N: f.n})
		default:
			err = k.granted(f, rest)
		}
		if err != nil {
			return used, k.wrapProtocol(err)
		}
	}
	return used, nil
}

// codeMatches reports whether code is the code of b with the given number. It returns true if the lane is not
// authenticated.
func (k *socket) codeMatches(number uint64, b, code []byte) bool {
	if !k.opener.on() {
		return true
	}
	right, _ := k.opener.open((*[codeSize]byte)(code), number, b)
	return right
}

// wrapProtocol returns err as a breach of the protocol by the peer on this lane.
func (k *socket) wrapProtocol(err error) error {
	return fmt.Errorf("%w: %v: %v: %w", fault.ErrProtocol, k.lane.Conn, k.lane, err)
}

// granted passes a grant to the message layer.
func (k *socket) granted(f reverseFrame, buffers []byte) error {
	for i := range f.n {
		k.grant[i] = decodeBuffer(buffers, i, f.n)
	}
	return k.lane.Conn.Sink.Granted(f.number, k.grant[:f.n])
}

// acknowledged handles an acknowledgement: count parts have arrived at the receiver in all.
func (k *socket) acknowledged(count uint64) error {
	n := count - k.delivered
	if n == 0 || n > uint64(k.accepted) {
		return fmt.Errorf("%d parts are acknowledged; %d were acknowledged before, and %d were sent", count, k.delivered, k.delivered+uint64(k.accepted))
	}
	for range n {
		p := &k.parts[k.oldest]
		k.oldest = (k.oldest + 1) % lane.Window
		k.accepted--
		if k.delivered++; p.request != lane.NoRequest {
			k.lane.Conn.Sink.Delivered(k.lane, p.request, p.part)
		}
	}
	return nil
}
