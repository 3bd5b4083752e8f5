package lane

// Imm is what the end of a part says: which part of which sub-receive it completes,
// and how many plain writes came before it.
//
//	31      24 23   21 20   16 15     11 10     3      2       1      0
//	[ slot 8 ][ sub 3 ][ part 5 ][ last 5 ][ writes 8 ][again 1][ 0 1 ][ brief 1 ]
//
// Last is the number of the message's last part; Again marks a part that was sent before,
// over a lane that failed. Brief marks a part of a brief signal: a message that puts no bytes
// into its buffer and has a number, which takes the place of Writes. On the wire it is in
// network order.
type Imm struct {
	Slot   uint8
	Sub    uint8
	Part   uint8
	Last   uint8
	Writes uint8 // 0 in a part of a brief signal
	Number uint8 // of a brief signal
	Again  bool
	Brief  bool
}

const (
	immBrief = 1 << 0
	immZero  = 1 << 1
	immAgain = 1 << 2
)

// Encode returns the immediate as a number, in host byte order.
func (m Imm) Encode() uint32 {
	count, marks := m.Writes, uint32(0)
	if m.Again {
		marks = immAgain
	}
	if m.Brief {
		count, marks = m.Number, marks|immBrief
	}
	return uint32(m.Slot)<<24 | uint32(m.Sub&7)<<21 | uint32(m.Part&31)<<16 | uint32(m.Last&31)<<11 | uint32(count)<<3 | marks
}

// Decode sets m from v and reports whether v is a well-formed immediate.
func (m *Imm) Decode(v uint32) bool {
	m.Slot = uint8(v >> 24)
	m.Sub = uint8(v>>21) & 7
	m.Part = uint8(v>>16) & 31
	m.Last = uint8(v>>11) & 31
	m.Writes, m.Number = uint8(v>>3), 0
	m.Again, m.Brief = v&immAgain != 0, v&immBrief != 0
	if m.Brief {
		m.Writes, m.Number = 0, m.Writes
	}
	return v&immZero == 0 && m.Part <= m.Last
}

// briefOffset is the offset of an empty part that belongs to a brief signal, in the header of a part on lanes whose
// carriers place parts: there the bits of Brief say other things, so that the number stands in the place of Writes.
const briefOffset = 1<<64 - 1

// DecodePlaced sets m from the code and the offset that PlacedHeader has returned, and reports whether they are
// well-formed.
func (m *Imm) DecodePlaced(v uint32, offset uint64) bool {
	ok := m.Decode(v) && !m.Brief
	if ok && offset == briefOffset {
		m.BecomeBrief()
	}
	return ok
}

// BecomeBrief makes an immediate of a placed part, whose code has a number in the place of Writes, that of a brief signal.
func (m *Imm) BecomeBrief() { m.Brief, m.Number, m.Writes = true, m.Writes, 0 }
