package lane

// Grant is one entry of the grant ring, in C's layout and the sender's byte
// order (both ends of a connection are little endian: amd64 and arm64): the
// receiver's word that one buffer is ready. A device writes it at the sender,
// sequence last.
type Grant struct {
	Addr     uint64             // where the buffer lies at the receiver
	Capacity uint32             // bytes it holds
	Tag      uint32             // what a send must carry to match it
	RKeys    [MaxDomains]uint32 // one for each domain of the receiver
	N        uint8              // entries of this slot
	Sub      uint8              // number of this entry
	After    uint8              // index of the lane that the grant before went over, and one; 0: no device's
	_        [5]byte            // 0
	Seq      uint64             // of the receive, from 1; read with acquire
}

// EntrySize is the size of a Grant.
const EntrySize = 64

// CopyFrom copies an entry of the ring, and reports whether it is of seq and was so
// before and after the copy.
func (g *Grant) CopyFrom(entry *Grant, seq uint64) bool {
	if Acquire(&entry.Seq) != seq {
		return false
	}
	*g = *entry
	return Acquire(&entry.Seq) == seq
}

// SlotOf is the ring's slot of a sequence number.
func SlotOf(seq uint64) uint8 { return uint8(seq % Window) }
