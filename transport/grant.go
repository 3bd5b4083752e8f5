package transport

// grant is one entry of the grant ring, in C's layout and the sender's byte
// order (both ends of a connection are little endian: amd64 and arm64): the
// receiver's word that one buffer is ready. The NIC writes it at the sender,
// sequence last.
type grant struct {
	addr     uint64             // where the buffer lies at the receiver
	capacity uint32             // bytes it holds
	tag      uint32             // what a send must carry to match it
	rkeys    [maxDevices]uint32 // one for each device of the receiver
	n        uint8              // entries of this slot
	sub      uint8              // number of this entry
	_        [6]byte            // flags 2 and the epoch of the lane set 4, for failover: 0
	seq      uint64             // of the receive, from 1; read with acquire
}

// copyFrom copies an entry of the ring, and reports whether it is of seq and was so
// before and after the copy.
func (g *grant) copyFrom(entry *grant, seq uint64) bool {
	if acquire(&entry.seq) != seq {
		return false
	}
	*g = *entry
	return acquire(&entry.seq) == seq
}

// slotOf is the ring's slot of a sequence number.
func slotOf(seq uint64) uint8 { return uint8(seq % window) }

// wire is the memory that the peer's device writes: the grant ring and the proof
// words that land here, and the words this side sends. Both halves of a
// connection lay it out alike; at the receiver the ring is the shadow from which
// groups of grants are gathered.
type wire struct {
	ring []grant  // window × maxSubs
	in   []uint64 // proof words from the peer, one to a lane
	out  []uint64 // proof words to the peer
}

// slot returns the entries of seq.
func (w *wire) slot(seq uint64) []grant {
	i := int(slotOf(seq)) * maxSubs
	return w.ring[i : i+maxSubs : i+maxSubs]
}

// Offsets of the peer's wire, from its base address.
func grantOffset(seq uint64) uint64 { return uint64(slotOf(seq)) * slotSize }
func proofOffset(lane uint8) uint64 { return proofIn + uint64(lane)*8 }
