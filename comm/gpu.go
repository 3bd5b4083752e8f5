package comm

import (
	"fmt"

	"ncclmesh/cuda"
	"ncclmesh/transport/lane"
)

// A GPU answers questions about the GPUs of the process and their memory. Its functions may be called from any thread. The zero value
// stands for a process without CUDA.
type GPU struct {
	Kind   func(addr uintptr) cuda.Kind
	Buffer func(addr uintptr) (number uint64, known bool) // as transport.Options.GPUBuffer
	Flush  func() error                                   // as transport.Options.FlushGPU
}

// CUDA returns the GPUs as CUDA knows them, where the program has loaded it. That is looked up at each call, because the program may load
// it later.
func CUDA() GPU {
	return GPU{
		Kind: func(addr uintptr) cuda.Kind {
			d, err := cuda.Loaded()
			if err != nil {
				return cuda.Unknown
			}
			return d.Memory(addr).Kind
		},
		Buffer: cuda.BufferID,
		Flush:  cuda.FlushWrites,
	}
}

// checkKind returns an error if CUDA knows that memory is not of the kind that the caller has named: the processor must not touch
// GPU memory, and adapters must not use managed memory.
func (g GPU) checkKind(r Region) error {
	if g.Kind == nil {
		return nil
	}
	switch k := g.Kind(r.Addr); {
	case k == cuda.Managed:
		return fmt.Errorf("%w: the buffer at %#x is managed memory, which no adapter can use: allocate it with cudaHostAlloc or cudaMalloc", ErrArgument, r.Addr)
	case k == cuda.Device && r.Kind != lane.GPUMemory:
		return fmt.Errorf("%w: the buffer at %#x is GPU memory: name it as such", ErrArgument, r.Addr)
	case k == cuda.Host && r.Kind == lane.GPUMemory:
		return fmt.Errorf("%w: the buffer at %#x is host memory, not GPU memory: name it as such", ErrArgument, r.Addr)
	}
	return nil
}
