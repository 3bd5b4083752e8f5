package lane

import "ncclmesh/ibv"

// The layout of a wire.
const (
	slotSize        = MaxSubs * EntrySize // bytes of a slot of the ring
	ringSize        = Window * slotSize
	probeSize       = MaxParts * 8            // bytes of one set of proof words
	eagerSize       = EagerWindow * EagerSize // bytes of eager messages
	ControlRingSize = ringSize + 2*probeSize  // bytes registered for the peer
	probeIn         = ringSize                // where the peer's proof words land
)

// ControlRing is the memory that the peer's device writes, outside the Go heap: the grant
// ring and the proof words that land here, and the words that this side sends. Both
// halves of a connection lay it out alike; at the receiver the ring is the shadow from
// which groups of grants are gathered. Behind them, where no device writes, lie eager
// messages: those that the sender may have to send again, those that came to the receiver
// before their receives. It stays mapped when it is freed: C looks at the ring of a
// connection that may just be closing.
type ControlRing struct {
	Ring  []Grant  // Window × MaxSubs
	In    []uint64 // proof words from the peer, one to a lane
	Out   []uint64 // proof words to the peer
	eager []byte   // EagerWindow × EagerSize
	mem   *ibv.Memory
}

var controlRings = ibv.NewPool(ControlRingSize + eagerSize)

// NewControlRing makes a wire, zeroed.
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

// Base is where the wire begins.
func (w *ControlRing) Base() uintptr { return w.mem.Addr() }

// Free gives the memory back. No device may write it any more.
func (w *ControlRing) Free() {
	if w.mem != nil {
		controlRings.Put(w.mem)
	}
	*w = ControlRing{}
}

// Slot returns the entries of seq.
func (w *ControlRing) Slot(seq uint64) []Grant {
	i := int(SlotOf(seq)) * MaxSubs
	return w.Ring[i : i+MaxSubs : i+MaxSubs]
}

// Eager is the room of the eager message of that number, and where that lies.
func (w *ControlRing) Eager(number uint64) ([]byte, uintptr) {
	i := int(number%EagerWindow) * EagerSize
	return w.eager[i : i+EagerSize : i+EagerSize], ibv.AddrOf(&w.eager[i])
}

// GrantOffset and ProofOffset are where a peer's wire has the slot of seq and a lane's
// proof word, from its base.
func GrantOffset(seq uint64) uint64 { return uint64(SlotOf(seq)) * slotSize }
func ProbeOffset(lane uint8) uint64 { return probeIn + uint64(lane)*8 }
