package lane

// Imm is what the end of a part says: which part of which sub-receive it completes,
// and how many plain writes came before it.
//
//	31      24 23   21 20   16 15     11 10     3   2   1   0
//	[ slot 8 ][ sub 3 ][ part 5 ][ last 5 ][ writes 8 ][again 1][ 0 2 ]
//
// Last is the number of the message's last part; Again marks a part that was sent before,
// over a lane that failed. On the wire it is in network order.
type Imm struct {
	Slot   uint8
	Sub    uint8
	Part   uint8
	Last   uint8
	Writes uint8
	Again  bool
}

const immAgain = 1 << 2

// Encode returns the immediate as a number, in host byte order.
func (m Imm) Encode() uint32 {
	var again uint32
	if m.Again {
		again = immAgain
	}
	return uint32(m.Slot)<<24 | uint32(m.Sub&7)<<21 | uint32(m.Part&31)<<16 | uint32(m.Last&31)<<11 | uint32(m.Writes)<<3 | again
}

// Decode sets m from v and reports whether v is a well-formed immediate.
func (m *Imm) Decode(v uint32) bool {
	m.Slot = uint8(v >> 24)
	m.Sub = uint8(v>>21) & 7
	m.Part = uint8(v>>16) & 31
	m.Last = uint8(v>>11) & 31
	m.Writes = uint8(v >> 3)
	m.Again = v&immAgain != 0
	return v&3 == 0 && m.Part <= m.Last
}
