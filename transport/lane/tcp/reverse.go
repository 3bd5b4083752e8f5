package tcp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// returns is what the receiver's side of a socket sends: grants, and
// acknowledgements of what has arrived.
type reverseStream struct {
	arrived          uint64 // parts so far
	acked            uint64 // of which there is an acknowledgement
	ackDue           bool   // the sender waits for the next: a part has arrived since that is no eager message
	nothingToRead    bool   // the last poll found nothing to read
	outHead, outTail int    // of mem.out: what the kernel does not have yet
	refused          error  // why the peer takes none any more
}

// SendGrant queues a grant, behind an acknowledgement of what has arrived, and
// gives the kernel what it takes.
func (k *socket) SendGrant(seq uint64, entries []lane.Grant, again bool) error {
	if again { // the sender's processor sees that it comes too late, if it does
		k.lane.Conn.Sink.Regranted(k.lane, lane.SlotOf(seq))
	}
	if err := k.reserve(); err != nil {
		return err
	}
	k.putAck()
	k.put(reverseFrame{kind: kindGrant, n: uint8(len(entries)), number: seq}, entries)
	return k.flushReverse()
}

// PutMatch queues word of an eager message, behind an acknowledgement of what has arrived.
func (k *socket) PutMatch(t lane.EagerMatch) error {
	if err := k.reserve(); err != nil {
		return err
	}
	k.putAck()
	k.put(reverseFrame{kindMatched, t.N, t.Sub, t.Seq, t.Number}, nil)
	return nil
}

// FlushMatches gives the kernel what it takes.
func (k *socket) FlushMatches() error { return k.flushReverse() }

// reserve makes room for two returns. There is none when the sender does not read, and
// sends more than it may.
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

// acknowledge tells the sender what has arrived, if it is time to: after some
// parts, when no more come at present, and at once when no receive is outstanding,
// as nobody may call again. Otherwise the next grant may take it along.
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

// Owes reports whether the peer has to be told of parts, or a part is to go out that nobody
// waits for, and the kernel does not take it.
func (k *socket) HasPendingOutput() bool {
	if k.lane.Conn.Sending {
		return k.eagerQueued > 0 && k.lane.InService()
	}
	return k.lane.InService() && (k.ackDue || k.outHead < k.outTail)
}

// Grantable is true: there is room for all grants that can be outstanding.
func (k *socket) Grantable() bool { return true }

// Prepare has nothing to do.
func (k *socket) Prepare() error { return nil }

// Fetch takes in grants and acknowledgements, and sends what waits: the receiver may need that
// before it grants more.
func (k *socket) Fetch() {
	err := k.flushParts()
	if err == nil {
		err = k.readReverse()
	}
	if err != nil {
		k.lane.Break(err)
	}
}

// putAck queues the acknowledgement of what has arrived, unless the peer has been
// told, or one waits already: the queue has room for one beside all grants.
func (k *socket) putAck() {
	if k.acked != k.arrived && k.outHead == k.outTail {
		k.acked, k.ackDue = k.arrived, false
		k.put(reverseFrame{kind: kindAck, number: k.acked}, nil)
	}
}

// put appends a frame to what goes out.
func (k *socket) put(f reverseFrame, entries []lane.Grant) {
	out := k.mem.out[k.outTail:]
	f.encode((*[frameHeader]byte)(out))
	n := k.putCode(out, 0, frameHeader)
	if len(entries) > 0 {
		n = k.putCode(out, n, n+encodeBuffers(out[n:], entries))
	}
	k.outTail += n
}

// putCode appends the code of b from one place to another, where there is one, and
// returns where it ends.
func (k *socket) putCode(b []byte, from, to int) int {
	if !k.sealer.on() {
		return to
	}
	k.sealer.seal((*[codeSize]byte)(b[to:]), k.sealer.next, b[from:to])
	k.sealer.next++
	return to + codeSize
}

// flushReturns gives the kernel the returns that wait. A peer that has closed the lane takes
// none, and may have sent messages before that nobody has read: the lane ends behind those.
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

// readReturns takes in what the receiver has sent.
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

// takeReturns acts on the whole frames in b and returns how many bytes they are.
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
				return used - frameHeader - code, nil // all of it will be looked at again
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

// fits reports whether b fits the code that follows it, where there is one.
func (k *socket) codeMatches(number uint64, b, code []byte) bool {
	if !k.opener.on() {
		return true
	}
	right, _ := k.opener.open((*[codeSize]byte)(code), number, b)
	return right
}

func (k *socket) wrapProtocol(err error) error {
	return fmt.Errorf("%w: %v: %v: %w", fault.ErrProtocol, k.lane.Conn, k.lane, err)
}

// granted hands on a grant.
func (k *socket) granted(f reverseFrame, buffers []byte) error {
	for i := range f.n {
		k.grant[i] = decodeBuffer(buffers, i, f.n)
	}
	return k.lane.Conn.Sink.Granted(f.number, k.grant[:f.n])
}

// acknowledged notes that count parts in all have arrived at the receiver.
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
