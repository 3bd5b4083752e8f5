package ibv

// This file is the way to the dynamic linker and to memory that C owns. Addresses handed to at and goString must be those
// of live C objects.

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"ncclmesh/internal/ccall"
)

func dlopen(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// libc holds what is taken from the C library of the process; dlvsym is 0 with one that has no symbol versions.
var libc = sync.OnceValue(func() (c struct{ dlvsym, errnoLocation uintptr }) {
	c.dlvsym, _ = purego.Dlsym(purego.RTLD_DEFAULT, "dlvsym")
	var err error
	if c.errnoLocation, err = purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location"); err != nil {
		// Without errno no verb's failure can be told; glibc and musl both have it.
		panic("ibv: the C library has no __errno_location: " + err.Error())
	}
	return c
})

// lookup finds name at a version, else at its default one; 0 if there is none.
func lookup(handle uintptr, name, version string) uintptr {
	if dlvsym := libc().dlvsym; dlvsym != 0 {
		n, v := cString(name), cString(version)
		if p := ccall.Call(dlvsym, handle, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(v)), 0, 0, 0); p != 0 {
			return p
		}
	}
	p, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return p
}

// at views C memory as a T.
func at[T any](addr uintptr) *T { return *(**T)(unsafe.Pointer(&addr)) }

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

func goString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	n := 0
	for *at[byte](addr + uintptr(n)) != 0 {
		n++
	}
	return string(unsafe.Slice(at[byte](addr), n))
}

// bigEndian converts between a big-endian word as C stores it and its value.
func bigEndian(v uint64) uint64 {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return bits.ReverseBytes64(v)
	}
	return v
}

// call calls a verb that takes up to six words. It returns the verb's result and errno as the verb left it.
//
//go:uintptrescapes
func call(fn uintptr, a1, a2, a3, a4, a5, a6 uintptr) (uintptr, syscall.Errno) {
	return ccall.Errno(libc().errnoLocation, fn, a1, a2, a3, a4, a5, a6, 0)
}

// failure is the errno of a verb that returns an int: 0, or an errno, or -1 with errno set. Verbs of all three kinds exist.
func failure(result uintptr, errno syscall.Errno) syscall.Errno {
	switch r := int32(result); {
	case r == 0:
		return 0
	case r > 0:
		return syscall.Errno(r)
	case errno != 0:
		return errno
	case r == -1:
		return syscall.EIO
	default:
		return syscall.Errno(-r)
	}
}

// absent is the errno of a verb that returned no object.
func absent(object uintptr, errno syscall.Errno) syscall.Errno {
	switch {
	case object != 0:
		return 0
	case errno == 0:
		return syscall.EIO
	default:
		return errno
	}
}
