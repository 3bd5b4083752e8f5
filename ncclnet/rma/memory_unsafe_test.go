package rma_test

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the word at an address outside the Go heap.
func wordAt(addr uintptr) *atomic.Uint64 { return *(**atomic.Uint64)(unsafe.Pointer(&addr)) }
