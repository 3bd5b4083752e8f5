package tcp

import (
	"encoding/binary"
	"fmt"

	"ncclmesh/transport/lane"
)

// What a lane's socket carries: frames, in little endian, each a header of 16
// bytes and what it says that follows.
//
// From the sender, for each part:
//
//	0  immediate 4, of which writes is 0
//	4  length 4
//	8  offset in the granted buffer 8
//	16 the bytes
//
// From the receiver, a grant for each receive, and acknowledgements:
//
//	0  kind 1
//	1  n 1, of a grant: 1 to 8
//	2  zero 6
//	8  number 8: the grant's sequence; how many parts have arrived on the lane
//	16 n times: capacity 4, tag 4
//
// Where the lane is checked a code of 16 bytes follows every header, and every
// 64 KiB of what follows a header, the last of which may be fewer: see coder.
const (
	frameHeader = 16
	grantBuffer = 8
	maxReturn   = frameHeader + codeSize + lane.MaxSubs*grantBuffer + codeSize
)

// Values of returnFrame.kind.
const (
	kindGrant = 1
	kindAck   = 2
)

// dataFrame is the header of a part.
type dataFrame struct {
	imm    uint32
	length uint32
	offset uint64
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

// returnFrame is the header of what a receiver sends.
type returnFrame struct {
	kind   uint8
	n      uint8
	number uint64
}

func (f returnFrame) encode(b *[frameHeader]byte) {
	*b = [frameHeader]byte{f.kind, f.n}
	binary.LittleEndian.PutUint64(b[8:], f.number)
}

func decodeReturn(b *[frameHeader]byte) (returnFrame, error) {
	f := returnFrame{b[0], b[1], binary.LittleEndian.Uint64(b[8:])}
	switch {
	case f.kind != kindGrant && f.kind != kindAck:
		return f, fmt.Errorf("frame of kind %d; %d and %d are known", f.kind, kindGrant, kindAck)
	case [6]byte(b[2:]) != [6]byte{}:
		return f, fmt.Errorf("frame of kind %d has %x where zeros belong", f.kind, b[2:8])
	case f.kind == kindAck && f.n != 0:
		return f, fmt.Errorf("acknowledgement %d names %d buffers", f.number, f.n)
	case f.kind == kindGrant && (f.n < 1 || f.n > lane.MaxSubs):
		return f, fmt.Errorf("grant %d names %d buffers; 1 to %d can be", f.number, f.n, lane.MaxSubs)
	}
	return f, nil
}

// encodeBuffers writes the buffers of a grant into b, which is large enough, and
// returns their length.
func encodeBuffers(b []byte, entries []lane.Grant) (n int) {
	for i := range entries {
		binary.LittleEndian.PutUint32(b[n:], entries[i].Capacity)
		binary.LittleEndian.PutUint32(b[n+4:], entries[i].Tag)
		n += grantBuffer
	}
	return n
}

// decodeBuffer reads buffer i of n that b begins with, without its sequence.
func decodeBuffer(b []byte, i, n uint8) lane.Grant {
	at := b[int(i)*grantBuffer:]
	return lane.Grant{
		Capacity: binary.LittleEndian.Uint32(at[0:]),
		Tag:      binary.LittleEndian.Uint32(at[4:]),
		N:        n, Sub: i,
	}
}
