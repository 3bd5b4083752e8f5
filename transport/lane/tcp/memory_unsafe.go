package tcp

import "unsafe"

// This file isolates the size of a socket's memory and the access to memory by address. Addresses are plain numbers,
// because they never point into the Go heap.

const socketMemorySize = int(unsafe.Sizeof(socketMemory{}))

// bytesAt returns the n bytes of memory at addr.
//
// Preconditions: addr lies outside the Go heap.
func bytesAt(addr uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}
