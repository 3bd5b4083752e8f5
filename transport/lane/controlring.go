package lane

import "ncclmesh/ibv"

// The layout of a control ring.
const (
	slotSize        = MaxSubs * EntrySize // bytes of a slot of the ring
	ringSize        = Window * slotSize
	probeSize       = MaxParts * 8            // bytes of one set of probe words
	eagerSize       = EagerWindow * EagerSize // bytes of eager messages
	ControlRingSize = ringSize + 2*probeSize  // bytes registered for the peer
	probeIn         = ringSize                // offset of the probe words that the peer writes
)

// ControlRing is the memory that the peer's device writes, outside the Go heap: the grant ring and the probe
// words of the peer; it also holds the probe words that this side sends. Both halves of a connection use the
// same layout. At the receiver the ring is a copy of the sender's, from which groups of grants are sent.
//
// Behind them, in memory that is not registered, are eager messages: at the sender those that may have to be
// sent again, at the receiver those that arrived before their receives. The memory stays mapped after Free,
// because C may read the ring of a connection that is just closing.
type ControlRing struct {
	Ring  []Grant  // Window × MaxSubs
	In    []uint64 // probe words from the peer, one per lane
	Out   []uint64 // probe words to the peer, one per lane
	eager []byte   // EagerWindow × EagerSize
	mem   *ibv.Memory
}

var controlRings = ibv.NewPool(ControlRingSize + eagerSize)

// NewControlRing allocates a zeroed control ring.
func NewControlRing() (*ControlRing, error) {
	m, err := controlRings.Get()
	if err != nil {
		return nil, err
	}
	return &ControlRing{
		Ring:  ibv.Carve[Grant](m, Window*MaxSubs),
		In:    ibv.Carve[uint64](m, MaxParts),
		Out:   ibv.Carve[uint64](m, MaxParts),
		eager: ibv.Carve[byte](m, eagerSize),
		mem:   m,
	}, nil
}

// Base returns the address of the control ring.
func (w *ControlRing) Base() uintptr { return w.mem.Addr() }

// Free returns the memory to the pool. No device may write it any more.
func (w *ControlRing) Free() {
	if w.mem != nil {
		controlRings.Put(w.mem)
	}
	*w = ControlRing{}
}

// Slot returns the entries of receive seq.
func (w *ControlRing) Slot(seq uint64) []Grant {
	i := int(SlotOf(seq)) * MaxSubs
	return w.Ring[i : i+MaxSubs : i+MaxSubs]
}

// Eager returns the buffer of the eager message with that number, and its address.
func (w *ControlRing) Eager(number uint64) ([]byte, uintptr) {
	i := int(number%EagerWindow) * EagerSize
	return w.eager[i : i+EagerSize : i+EagerSize], ibv.AddrOf(&w.eager[i])
}

// GrantOffset returns the offset of receive seq's slot in a control ring, ProbeOffset that of a lane's probe
// word.
func GrantOffset(seq uint64) uint64 { return uint64(SlotOf(seq)) * slotSize }
func ProbeOffset(lane uint8) uint64 { return probeIn + uint64(lane)*8 }
