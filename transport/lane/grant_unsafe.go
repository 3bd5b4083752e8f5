package lane

// This file isolates the size check of the grant's layout and the atomic reads of words that a device writes.

import (
	"sync/atomic"
	"unsafe"
)

// The layout of a grant is part of the protocol.
const (
	_ = uint(EntrySize - unsafe.Sizeof(Grant{}))
	_ = uint(unsafe.Sizeof(Grant{}) - EntrySize)
	_ = uint(unsafe.Offsetof(Grant{}.Seq) - (EntrySize - 8))
)

// Acquire loads a word that a device writes. Everything that the device wrote before it is visible after the
// load.
func Acquire(p *uint64) uint64 { return atomic.LoadUint64(p) }
