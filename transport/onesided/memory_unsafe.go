package onesided

// This file isolates access to the memory of windows, which lies outside the Go heap.

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the word at an address.
//
// Preconditions: addr is a multiple of 8 inside a window of host memory that has not ended.
func wordAt(addr uintptr) *atomic.Uint64 { return *(**atomic.Uint64)(unsafe.Pointer(&addr)) }

// copyMemory copies n bytes between addresses inside windows of host memory; the ranges may overlap.
func copyMemory(to, from uintptr, n uint64) {
	copy(unsafe.Slice(*(**byte)(unsafe.Pointer(&to)), n), unsafe.Slice(*(**byte)(unsafe.Pointer(&from)), n))
}
