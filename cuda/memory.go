package cuda

// A Kind is the kind of memory at an address.
type Kind uint8

// Kinds of memory.
const (
	Unknown Kind = iota // CUDA does not answer on this thread
	Host                // the processor's, known to CUDA or not
	Device              // a GPU's
	Managed             // pages that CUDA moves between the processor and GPUs; no PCIe device may use them
)

func (k Kind) String() string {
	return [...]string{"memory of an unknown kind", "host memory", "GPU memory", "managed memory"}[k]
}

// Memory describes the memory at an address. Of memory that CUDA does not know only Kind is set.
type Memory struct {
	Kind   Kind
	ID     uint64  // of the allocation: never used again in this process; 0: none
	Base   uintptr // where the allocation starts
	Length uintptr // its size in bytes
}

// Pointer attributes, from enum CUpointer_attribute_enum, and values of the memory type, from enum CUmemorytype_enum.
const (
	pointerMemoryType = 2 // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	pointerBufferID   = 7 // CU_POINTER_ATTRIBUTE_BUFFER_ID
	pointerIsManaged  = 8 // CU_POINTER_ATTRIBUTE_IS_MANAGED
	memoryTypeHost    = 1 // CU_MEMORYTYPE_HOST
	memoryTypeDevice  = 2 // CU_MEMORYTYPE_DEVICE
	memoryTypeUnified = 4 // CU_MEMORYTYPE_UNIFIED
)

// Memory returns what lies at an address.
func (d *Driver) Memory(addr uintptr) Memory {
	kind := d.kind(addr)
	if kind == Unknown {
		return Memory{}
	}
	m := Memory{Kind: kind}
	m.ID, _ = d.BufferID(addr)
	if base, length, result := d.addressRange(addr); result == CUDA_SUCCESS {
		m.Base, m.Length = base, length
	}
	return m
}

func (d *Driver) kind(addr uintptr) Kind {
	value, result := d.pointer(addr, pointerMemoryType)
	switch {
	case result == CUDA_ERROR_INVALID_VALUE: // not allocated or registered with CUDA
		return Host
	case result != CUDA_SUCCESS:
		return Unknown
	}
	switch uint32(value) {
	case memoryTypeHost:
		return Host
	case memoryTypeUnified:
		return Managed
	case memoryTypeDevice:
		managed, result := d.pointer(addr, pointerIsManaged)
		switch {
		case result != CUDA_SUCCESS:
			return Unknown
		case uint8(managed) != 0:
			return Managed
		}
		return Device
	}
	return Unknown
}

// BufferID returns the number of the allocation that an address lies in. Another allocation at the same address has another number. It
// returns false for memory that CUDA does not know, and where it does not answer.
func (d *Driver) BufferID(addr uintptr) (id uint64, known bool) {
	id, result := d.pointer(addr, pointerBufferID)
	return id, result == CUDA_SUCCESS
}
