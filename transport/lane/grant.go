package lane

// Grant is one entry of the grant ring: the receiver's message that one buffer is ready. It has C's layout and
// the sender's byte order; both ends of a connection are little endian (amd64 and arm64). The receiver's device
// writes it into the sender's memory, the sequence last.
type Grant struct {
	Addr     uint64             // address of the buffer at the receiver
	Capacity uint32             // bytes it holds
	Tag      uint32             // tag of the message that matches the buffer
	RKeys    [MaxDomains]uint32 // one for each domain of the receiver
	N        uint8              // number of entries of this slot
	Sub      uint8              // number of this entry
	After    uint8              // 1 + index of the lane that carried the grant before; 0 if no device wrote that
	_        [5]byte            // 0
	Seq      uint64             // of the receive, from 1; read with Acquire
}

// EntrySize is the size of a Grant.
const EntrySize = 64

// CopyFrom copies an entry of the ring into g. It returns false if the entry does not belong to receive seq or
// changed during the copy.
func (g *Grant) CopyFrom(entry *Grant, seq uint64) bool {
	if Acquire(&entry.Seq) != seq {
		return false
	}
	*g = *entry
	return Acquire(&entry.Seq) == seq
}

// SlotOf returns the slot of the ring for a sequence number.
func SlotOf(seq uint64) uint8 { return uint8(seq % Window) }
