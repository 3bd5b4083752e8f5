package lane

// Isolates the size check of the grant's layout and the atomic reads of words
// that a device writes.

import (
	"sync/atomic"
	"unsafe"
)

// A grant's layout is the protocol's.
const (
	_ = uint(EntrySize - unsafe.Sizeof(Grant{}))
	_ = uint(unsafe.Sizeof(Grant{}) - EntrySize)
	_ = uint(unsafe.Offsetof(Grant{}.Seq) - (EntrySize - 8))
)

// Acquire reads a word that a device writes: what was written before it is
// visible after it.
func Acquire(p *uint64) uint64 { return atomic.LoadUint64(p) }
