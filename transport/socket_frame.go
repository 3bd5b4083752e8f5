package transport

import (
	"encoding/binary"
	"fmt"
)

// What a lane's socket carries, in little endian.
//
// From the sender, for each part:
//
//	0  immediate 4, of which writes is 0
//	4  length 4
//	8  offset in the granted buffer 8
//	16 the bytes
//
// From the receiver, for each receive:
//
//	0  sequence 8
//	8  n 4, 1 to 8
//	12 n times: capacity 4, tag 4
const (
	dataHeader  = 16
	grantHeader = 12
	grantBuffer = 8
	maxGrant    = grantHeader + maxSubs*grantBuffer
)

// dataFrame is the header of a part.
type dataFrame struct {
	imm    uint32
	length uint32
	offset uint64
}

func (f dataFrame) encode(b *[dataHeader]byte) {
	binary.LittleEndian.PutUint32(b[0:], f.imm)
	binary.LittleEndian.PutUint32(b[4:], f.length)
	binary.LittleEndian.PutUint64(b[8:], f.offset)
}

func decodeData(b *[dataHeader]byte) dataFrame {
	return dataFrame{
		imm:    binary.LittleEndian.Uint32(b[0:]),
		length: binary.LittleEndian.Uint32(b[4:]),
		offset: binary.LittleEndian.Uint64(b[8:]),
	}
}

// encodeGrant writes the grant of seq into b, which is large enough, and returns
// its length.
func encodeGrant(b []byte, seq uint64, entries []grant) int {
	binary.LittleEndian.PutUint64(b[0:], seq)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(entries)))
	n := grantHeader
	for i := range entries {
		binary.LittleEndian.PutUint32(b[n:], entries[i].capacity)
		binary.LittleEndian.PutUint32(b[n+4:], entries[i].tag)
		n += grantBuffer
	}
	return n
}

// decodeGrant reads the grant at the beginning of b into entries, without their
// sequence, and returns the sequence, the number of entries and the length. The
// length is 0 when b does not hold all of it.
func decodeGrant(b []byte, entries *[maxSubs]grant) (seq uint64, n, length int, err error) {
	if len(b) < grantHeader {
		return 0, 0, 0, nil
	}
	seq = binary.LittleEndian.Uint64(b[0:])
	count := binary.LittleEndian.Uint32(b[8:])
	if count < 1 || count > maxSubs {
		return seq, 0, 0, fmt.Errorf("grant %d names %d buffers; 1 to %d can be", seq, count, maxSubs)
	}
	n = int(count)
	length = grantHeader + n*grantBuffer
	if len(b) < length {
		return seq, n, 0, nil
	}
	for i := range n {
		at := b[grantHeader+i*grantBuffer:]
		entries[i] = grant{
			capacity: binary.LittleEndian.Uint32(at[0:]),
			tag:      binary.LittleEndian.Uint32(at[4:]),
			n:        uint8(n), sub: uint8(i),
		}
	}
	return seq, n, length, nil
}
