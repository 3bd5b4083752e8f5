package lane

// This file isolates the copying of short messages into and out of the user's memory.

import (
	"runtime/debug"
	"unsafe"
)

// CopyOut copies b to the user's memory at addr. It stores 8 bytes at a time where both are aligned to 8,
// because a GPU may poll words of 8 bytes. It returns false if the memory is not mapped, as a system call
// would.
//
// Preconditions: addr lies outside the Go heap.
func CopyOut(addr uintptr, b []byte) (ok bool) {
	if len(b) == 0 {
		return true
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = Mapped(recover()) }()
	to := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), len(b))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	words := 0
	if addr%8 == 0 && from%8 == 0 {
		words = len(b) / 8
		w := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(to))), words)
		for i, v := range unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), words) {
			w[i] = v
		}
	}
	copy(to[words*8:], b[words*8:])
	return
}

// CopyIn copies len(b) bytes of the user's memory at addr to b. It returns false if the memory is not mapped,
// as a system call would.
//
// Preconditions: addr lies outside the Go heap.
func CopyIn(b []byte, addr uintptr) (ok bool) {
	if len(b) == 0 {
		return true
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = Mapped(recover()) }()
	copy(b, unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), len(b)))
	return
}

// Mapped reports whether a recovered value is nil, and false for a fault at an address. It panics again with
// any other value.
func Mapped(recovered any) bool {
	if recovered == nil {
		return true
	}
	if _, fault := recovered.(interface{ Addr() uintptr }); !fault {
		panic(recovered)
	}
	return false
}
