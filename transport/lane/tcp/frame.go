package tcp

import (
	"encoding/binary"
	"fmt"

	"ncclmesh/transport/lane"
)

// A lane's socket carries frames. Integers are little endian. Each frame has a header of 16
// bytes and a payload whose length follows from the header.
//
// From the sender, for each part:
//
//	0  immediate 4, of which writes is 0
//	4  length 4
//	8  offset in the granted buffer 8
//	16 the bytes
//
// for a part of a brief signal, which is empty: see lane.Imm
//
//	0  immediate 4, in which the number has the place of writes
//	4  zero 4
//	8  2^64 - 1 8
//
// for each eager message, which is a part of its own; and with kind 2, and zeros behind the
// number, to request grants:
//
//	0  kind 2 bits, 1; number 30 bits
//	4  length 4, up to 1024
//	8  tag 4
//	12 head 4: lower half of a sequence, see lane.Eager
//	16 the bytes
//
// for each part of a put, which goes into a window without a grant:
//
//	0  kind 2 bits, 3; window 30 bits
//	4  length 4
//	8  offset in the window 8
//	16 the bytes
//
// From the receiver, on the reverse stream: a grant for each receive, acknowledgements, and reports of
// eager messages that have been copied into their buffers:
//
//	0  kind 1
//	1  n 1: buffers of the receive, 1 to 8; of an acknowledgement 0
//	2  sub 1: of an eager message, see lane.EagerMatch; else 0
//	3  zero 1
//	4  receive 4: of an eager message; else 0
//	8  number 8: the grant's sequence; how many parts have arrived on the lane; the eager
//	   message's
//	16 n times, of a grant: capacity 4, tag 4
//
// On an authenticated lane a code of 16 bytes follows every header and every
// 64 KiB of a payload; the last block of a payload may be shorter: see coder.
const (
	frameHeader     = 16
	grantBuffer     = 8
	maxReverseFrame = frameHeader + codeSize + lane.MaxSubs*grantBuffer + codeSize
)

// Values of reverseFrame.kind.
const (
	kindGrant   = 1
	kindAck     = 2
	kindMatched = 3
)

// dataFrame is the header of a part.
type dataFrame struct {
	imm    uint32
	length uint32
	offset uint64
}

// The lower bits of dataFrame.imm: those of an immediate are 0.
const (
	kindBits  = 32 - lane.EagerBits
	kindMask  = 1<<kindBits - 1
	kindPart  = 0
	kindEager = 1
	kindAsk   = 2
	kindPut   = 3 // as lane.PutCode
)

// eagerFrame returns the header of an eager message, or of a request for grants.
func eagerFrame(e *lane.Eager, size int) dataFrame {
	if e.Ask {
		return dataFrame{imm: e.Number<<kindBits | kindAsk}
	}
	return dataFrame{imm: e.Number<<kindBits | kindEager, length: uint32(size), offset: uint64(uint32(e.Tag)) | uint64(e.Head)<<32}
}

func (f dataFrame) kind() uint32 { return f.imm & kindMask }

// placed reports whether the message layer places the frame's bytes: those of a part of a message or of a put.
func (f dataFrame) placed() bool { k := f.kind(); return k == kindPart || k == kindPut }

// eager decodes the header of an eager message or of a request for grants.
func (f dataFrame) eager() (lane.Eager, error) {
	e := lane.Eager{Number: f.imm >> kindBits, Tag: int32(uint32(f.offset)), Head: uint32(f.offset >> 32), Ask: f.kind() == kindAsk}
	switch {
	case e.Ask && (f.length != 0 || f.offset != 0):
		return e, fmt.Errorf("frame that asks for grants has %d and %#x where zeros belong", f.length, f.offset)
	case !e.Ask && f.kind() != kindEager:
		return e, fmt.Errorf("frame of kind %d is no eager message", f.kind())
	case f.length > lane.EagerSize:
		return e, fmt.Errorf("eager message of %d bytes; at most %d are allowed", f.length, lane.EagerSize)
	}
	return e, nil
}

func (f dataFrame) encode(b *[frameHeader]byte) {
	binary.LittleEndian.PutUint32(b[0:], f.imm)
	binary.LittleEndian.PutUint32(b[4:], f.length)
	binary.LittleEndian.PutUint64(b[8:], f.offset)
}

func decodeData(b *[frameHeader]byte) dataFrame {
	return dataFrame{
		imm:    binary.LittleEndian.Uint32(b[0:]),
		length: binary.LittleEndian.Uint32(b[4:]),
		offset: binary.LittleEndian.Uint64(b[8:]),
	}
}

// reverseFrame is the header of a frame from the receiver.
type reverseFrame struct {
	kind   uint8
	n      uint8
	sub    uint8
	seq    uint32
	number uint64
}

func (f reverseFrame) encode(b *[frameHeader]byte) {
	*b = [frameHeader]byte{f.kind, f.n, f.sub}
	binary.LittleEndian.PutUint32(b[4:], f.seq)
	binary.LittleEndian.PutUint64(b[8:], f.number)
}

// buffers returns the number of buffers that follow the header.
func (f reverseFrame) buffers() int {
	if f.kind == kindGrant {
		return int(f.n)
	}
	return 0
}

func decodeReverse(b *[frameHeader]byte) (reverseFrame, error) {
	f := reverseFrame{b[0], b[1], b[2], binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])}
	switch {
	case f.kind < kindGrant || f.kind > kindMatched:
		return f, fmt.Errorf("frame of kind %d; %d to %d are known", f.kind, kindGrant, kindMatched)
	case b[3] != 0, f.kind != kindMatched && (f.sub != 0 || f.seq != 0):
		return f, fmt.Errorf("frame of kind %d has %x where zeros belong", f.kind, b[2:8])
	case f.kind == kindAck && f.n != 0:
		return f, fmt.Errorf("acknowledgement %d names %d buffers", f.number, f.n)
	case f.kind == kindMatched && (f.n < 1 || f.n > lane.MaxSubs || f.sub >= f.n):
		return f, fmt.Errorf("eager message %d is reported in buffer %d of %d; 1 to %d are allowed", f.number, f.sub+1, f.n, lane.MaxSubs)
	case f.kind == kindGrant && (f.n < 1 || f.n > lane.MaxSubs):
		return f, fmt.Errorf("grant %d names %d buffers; 1 to %d are allowed", f.number, f.n, lane.MaxSubs)
	}
	return f, nil
}

// encodeBuffers writes the buffers of a grant into b, which must be large enough, and returns the number of
// bytes.
func encodeBuffers(b []byte, entries []lane.Grant) (n int) {
	for i := range entries {
		binary.LittleEndian.PutUint32(b[n:], entries[i].Capacity)
		binary.LittleEndian.PutUint32(b[n+4:], entries[i].Tag)
		n += grantBuffer
	}
	return n
}

// decodeBuffer decodes buffer i of the n buffers in b, without its sequence number.
func decodeBuffer(b []byte, i, n uint8) lane.Grant {
	at := b[int(i)*grantBuffer:]
	return lane.Grant{
		Capacity: binary.LittleEndian.Uint32(at[0:]),
		Tag:      binary.LittleEndian.Uint32(at[4:]),
		N:        n, Sub: i,
	}
}
