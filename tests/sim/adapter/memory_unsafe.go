package adapter

// This file reaches memory by the addresses that work requests hold, as an adapter does. The memory must be mapped, outside
// the Go heap or held by the caller, for as long as it is registered.

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
)

// bytesAt views memory that a region covers.
func bytesAt(addr, length uint64) []byte {
	if length == 0 {
		return nil
	}
	p := uintptr(addr)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), int(length))
}

// elements views an array of a work request.
func elements(addr uintptr, n int32) []ibv.SGE {
	if n <= 0 {
		return nil
	}
	return unsafe.Slice(*(**ibv.SGE)(unsafe.Pointer(&addr)), int(n))
}

// next views a work request that another leads to; nil at the end of a chain.
func next[T ibv.SendWR | ibv.RecvWR](addr uintptr) *T { return *(**T)(unsafe.Pointer(&addr)) }

// mapAt maps n bytes of a file where the processor cannot touch them, at addr or, if that is 0, anywhere.
func mapAt(fd int, addr uintptr, n int) ([]byte, error) {
	flags := unix.MAP_SHARED
	if addr != 0 {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	p, err := unix.MmapPtr(fd, 0, *(*unsafe.Pointer)(unsafe.Pointer(&addr)), uintptr(n), unix.PROT_NONE, flags)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// unmap ends a mapping of mapAt.
func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
