package ccall

// This file hands argument blocks on the goroutine's stack to the trampolines in call_*.s. The stack does not move while
// a goroutine is inside C, so the trampolines may write results back.

import (
	"syscall"
	"unsafe"

	_ "github.com/ebitengine/purego" // without cgo, what makes a Go program able to call C at all
)

//go:linkname runtimeCgocall runtime.cgocall
//go:noescape
func runtimeCgocall(fn uintptr, block unsafe.Pointer) int32

// Addresses of the trampolines, which have C's calling convention.
var plainAddr, errnoAddr, outAddr uintptr

// A block is known by its offsets to the assembly.
type block struct {
	fn     uintptr
	args   [7]uintptr
	result uintptr
	extra  uintptr // in: __errno_location for Errno; out: errno, or the word that Out's third argument points to
}

// Call calls fn with up to six arguments and returns what it returned. Pointers converted in the argument list stay valid
// during the call.
//
//go:uintptrescapes
func Call(fn, a1, a2, a3, a4, a5, a6 uintptr) uintptr {
	b := block{fn: fn, args: [7]uintptr{a1, a2, a3, a4, a5, a6}}
	runtimeCgocall(plainAddr, unsafe.Pointer(&b))
	return b.result
}

// Errno is Call for functions that report failure through errno, of up to seven arguments: errno is cleared before and read
// after the call, on the same thread, with nothing in between. errnoLocation is the address of __errno_location.
//
//go:uintptrescapes
func Errno(errnoLocation, fn, a1, a2, a3, a4, a5, a6, a7 uintptr) (uintptr, syscall.Errno) {
	b := block{fn: fn, args: [7]uintptr{a1, a2, a3, a4, a5, a6, a7}, extra: errnoLocation}
	runtimeCgocall(errnoAddr, unsafe.Pointer(&b))
	return b.result, syscall.Errno(b.extra)
}

// Out calls fn(a1, a2, &out), where out is a pointer-sized word that starts as zero.
//
//go:uintptrescapes
func Out(fn, a1, a2 uintptr) (result, out uintptr) {
	b := block{fn: fn, args: [7]uintptr{a1, a2}}
	runtimeCgocall(outAddr, unsafe.Pointer(&b))
	return b.result, b.extra
}
