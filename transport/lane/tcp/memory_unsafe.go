package tcp

import "unsafe"

// This file isolates the size of the memory of a socket, and the look at memory by its address. Addresses are plain numbers,
// because what they point at is never Go heap.

const socketMemorySize = int(unsafe.Sizeof(socketMemory{}))

// bytesAt are the n bytes of memory at addr.
//
// Preconditions: addr lies outside the Go heap.
func bytesAt(addr uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}
