package comm

import (
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
)

// Memory is memory outside the Go heap: page-aligned, zeroed, and not inherited by forked children.
type Memory = ibv.Memory

// Alloc makes memory of at least size bytes, which the caller frees with [ibv.Memory.Free].
func Alloc(size int) (*Memory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("%w: memory of %d bytes, want at least 1", ErrArgument, size)
	}
	return ibv.Alloc(size)
}

// A Region is memory to register.
type Region struct {
	Kind   lane.MemoryKind // lane.HostMemory or lane.GPUMemory
	Addr   uintptr
	Length uint64 // bytes
	DMABuf *DMABuf
}

// DMABuf is the descriptor by which an adapter finds GPU memory, where it cannot by the address. It is not kept.
type DMABuf struct {
	FD     int
	Offset uint64 // of the region in it, in bytes
}

// check returns an error if the region cannot be registered.
func (r Region) check(gpu GPU) error {
	switch {
	case r.Addr == 0 || r.Length == 0:
		return fmt.Errorf("%w: a buffer of %d bytes at %#x, want memory", ErrArgument, r.Length, r.Addr)
	case uint64(r.Addr)+r.Length < r.Length:
		return fmt.Errorf("%w: a buffer of %d bytes at %#x goes beyond the end of the address space", ErrArgument, r.Length, r.Addr)
	case r.Kind != lane.HostMemory && r.Kind != lane.GPUMemory:
		return fmt.Errorf("%w: a buffer in %v", ErrArgument, r.Kind)
	}
	return gpu.checkKind(r)
}

// inside returns an error if a range is not inside a buffer of limit bytes. what names the buffer.
func inside(what string, offset, size, limit uint64) error {
	if fits(offset, size, limit) {
		return nil
	}
	return fmt.Errorf("%w: %d bytes at offset %d of %s, which has %d bytes", ErrArgument, size, offset, what, limit)
}

// fits reports whether a range is inside a buffer of limit bytes.
func fits(offset, size, limit uint64) bool { return offset <= limit && size <= limit-offset }
