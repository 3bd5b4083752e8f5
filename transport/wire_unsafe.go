package transport

// Isolates the size check of the grant's layout and the atomic reads of words
// that a device writes.

import (
	"sync/atomic"
	"unsafe"

	"ncclmesh/ibv"
)

// A grant's layout is the protocol's.
const (
	_ = uint(entrySize - unsafe.Sizeof(grant{}))
	_ = uint(unsafe.Sizeof(grant{}) - entrySize)
	_ = uint(unsafe.Offsetof(grant{}.seq) - (entrySize - 8))
)

// acquire reads a word that a device writes: what was written before it is
// visible after it.
func acquire(p *uint64) uint64 { return atomic.LoadUint64(p) }

// carveWire lays a wire out at the next bytes of m, which must have wireSize of
// them left, and returns it with its address.
func carveWire(m *ibv.Memory) (wire, uintptr) {
	var w wire
	w.ring = ibv.Carve[grant](m, window*maxSubs)
	w.in = ibv.Carve[uint64](m, maxParts)
	w.out = ibv.Carve[uint64](m, maxParts)
	return w, ibv.AddrOf(&w.ring[0])
}
