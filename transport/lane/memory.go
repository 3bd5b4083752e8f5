package lane

import (
	"fmt"
	"os"

	"ncclmesh/transport/forkfd"
)

// MemoryKind says what memory a region lies in.
type MemoryKind uint8

const (
	HostMemory MemoryKind = 0 // memory that the processor can read and write
	GPUMemory  MemoryKind = 1 // a GPU's memory, which only devices can read and write
)

func (k MemoryKind) String() string {
	switch k {
	case HostMemory:
		return "host memory"
	case GPUMemory:
		return "GPU memory"
	}
	return fmt.Sprintf("memory of kind %d", uint8(k))
}

// Memory is a range of memory to register.
type Memory struct {
	Kind         MemoryKind
	Addr, Length uintptr
	DMABuf       *DMABuf // how devices find it; nil: by its address
}

// DMABuf names memory by a descriptor that its owner has exported.
type DMABuf struct {
	FD     int    // -1: unknown
	Offset uint64 // of the memory's first byte in what the descriptor stands for
	kept   bool   // FD is a copy of the owner's descriptor
}

// KeepDMABuf copies the descriptor of a DMA-BUF, in which the memory that the process sees at addr begins at offset. A
// forked child closes the copy, because memory stays allocated while a process has a descriptor of it. If the process may
// not have another descriptor, the owner's is used until Forget.
//
// NCCL always passes offset 0, also for an address inside a page. What such a descriptor stands for begins with
// the page, because CUDA exports whole pages only.
func KeepDMABuf(fd int, addr uintptr, offset uint64) *DMABuf {
	if offset == 0 {
		offset = uint64(addr) % uint64(os.Getpagesize())
	}
	b := &DMABuf{FD: fd, Offset: offset}
	if kept, err := forkfd.Copy(fd); err == nil {
		b.FD, b.kept = kept, true
	}
	return b
}

// Forget forgets the owner's descriptor, which the owner may close now. A copy stays.
func (b *DMABuf) Forget() {
	if !b.kept {
		b.FD = -1
	}
}

// Close closes the copy of the descriptor.
func (b *DMABuf) Close() error {
	if !b.kept {
		return nil
	}
	fd := b.FD
	b.FD, b.kept = -1, false
	return forkfd.CloseFD(fd)
}

func (m Memory) String() string {
	by := ""
	if m.DMABuf != nil {
		by = fmt.Sprintf(" by DMA-BUF %d", m.DMABuf.FD)
	}
	return fmt.Sprintf("%d bytes of %v at %#x%s", m.Length, m.Kind, m.Addr, by)
}
