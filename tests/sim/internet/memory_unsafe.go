package internet

// This file reaches memory by the addresses that a stream is given, as a kernel does. It must be mapped, outside the Go
// heap, for the length of the call.

import "unsafe"

// bytesAt views n bytes at an address.
func bytesAt(addr uintptr, n int) []byte {
	if n <= 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}
