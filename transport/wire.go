package transport

import "encoding/binary"

// The limits of a connection. They are part of the protocol: both halves rely
// on them.
const (
	window     = 256 // receives that may be outstanding, and slots of the grant ring
	maxSubs    = 8   // sub-receives of one receive
	maxParts   = 32  // parts of one message, and lanes of one connection
	maxDevices = 8   // devices of a connection on either side

	entrySize = 64                            // bytes of a grant
	slotSize  = maxSubs * entrySize           // bytes of a slot of the ring
	ringSize  = window * slotSize             // bytes of the ring
	proofSize = maxParts * 8                  // bytes of one set of proof words
	wireSize  = ringSize + 2*proofSize        // bytes registered for the peer
	proofIn   = ringSize                      // where the peer's proof words land
	proofOut  = ringSize + proofSize          // where ours are sent from
	partAlign = 128                           // parts are cut on multiples of this: NCCL's LL128 needs it
	maxWrites = 1 << 8                        // plain writes of one part that an immediate can count, and one
	maxChunk  = 1 << 30                       // bytes of one write
	maxBytes  = int64(maxWrites-1) * maxChunk // more than any message
)

// imm is the immediate of the last write of a part: which part of which
// sub-receive it completes, and how many plain writes came before it.
//
//	31      24 23   21 20   16 15     11 10     3 2   0
//	[ slot 8 ][ sub 3 ][ part 5 ][ last 5 ][ writes 8 ][ 0 3 ]
//
// last is the number of the message's last part. It travels in network order.
type imm struct {
	slot   uint8
	sub    uint8
	part   uint8
	last   uint8
	writes uint8
}

func (m imm) encode() uint32 {
	return uint32(m.slot)<<24 | uint32(m.sub&7)<<21 | uint32(m.part&31)<<16 | uint32(m.last&31)<<11 | uint32(m.writes)<<3
}

// decodeImm reports whether v is a well-formed immediate.
func decodeImm(v uint32) (imm, bool) {
	m := imm{
		slot:   uint8(v >> 24),
		sub:    uint8(v>>21) & 7,
		part:   uint8(v>>16) & 31,
		last:   uint8(v>>11) & 31,
		writes: uint8(v >> 3),
	}
	return m, v&7 == 0 && m.part <= m.last
}

// networkOrder converts between a number and the word that a work request or a
// completion stores: the immediate's bytes in network order.
func networkOrder(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}
