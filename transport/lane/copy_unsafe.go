package lane

// Isolates the copying of what is short into the user's memory, and out of it.

import (
	"runtime/debug"
	"unsafe"
)

// CopyOut copies b to the user's memory at addr, 8 bytes at a store where both lie on such a
// boundary: a GPU may watch for words of 8 bytes. It reports false when the memory is not
// mapped, as the kernel would.
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

// CopyIn copies the user's memory at addr to b. It reports false when that is not mapped, as
// the kernel would.
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

// Mapped reports whether what was recovered is no fault at an address; any other panic
// goes on.
func Mapped(recovered any) bool {
	if recovered == nil {
		return true
	}
	if _, fault := recovered.(interface{ Addr() uintptr }); !fault {
		panic(recovered)
	}
	return false
}
