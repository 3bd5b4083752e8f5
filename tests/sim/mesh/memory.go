package mesh

import (
	"syscall"

	"ncclmesh/ibv"
	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/adapter"
)

// Kinds of memory that the messages of a connection lie in.
const (
	HostMemory  = ""       // at both ends
	GPUMemory   = "gpu"    // at both ends, registered by address
	DMABufs     = "dmabuf" // GPU memory at both ends, registered by DMA-BUF
	MixedMemory = "mixed"  // the host's at the sender and the GPU's at the receiver, as for NCCL's LL
)

// memories are the kinds of memory, as a scenario's text has them.
var memories = []string{GPUMemory, DMABufs, MixedMemory}

// buffers is the memory of one end of a connection: a buffer for each message in flight, with a border before and after it. A window of
// an exchange is one such buffer.
type buffers struct {
	host *ibv.Memory        // nil: the memory is a GPU's
	gpu  *adapter.GPUMemory // nil: it is the host's
	all  []byte
	addr uintptr // where the plugin is told that it is
	each int

	window int
}

// newBuffers allocates buffers of room bytes each, in the memory that a connection of that kind has at its sender or its receiver.
func (r *Rank) newBuffers(window, room int, kind string, sender bool) (*buffers, error) {
	b := &buffers{window: window, each: border + (room+7)/8*8 + border}
	size := window * b.each
	if kind == HostMemory || kind == MixedMemory && sender {
		var err error
		if b.host, err = ibv.Alloc(size); err != nil {
			return nil, err
		}
		b.all = ibv.Carve[byte](b.host, size)
		b.addr = b.host.Addr()
		return b, nil
	}
	var err error
	if b.gpu, err = r.world.Fabric.NewGPUMemory(size); err != nil {
		return nil, err
	}
	r.gpus = append(r.gpus, b.gpu)
	b.all, b.addr = b.gpu.Bytes(), b.gpu.Addr()
	return b, nil
}

// register registers the buffers with a connection, as NCCL does. The memory's kind says how.
func (b *buffers) register(r *Rank, comm ncclnet.Handle, kind string) (ncclnet.Handle, error) {
	var mr ncclnet.Handle
	var result ncclnet.Result
	switch {
	case b.gpu == nil:
		mr, result = r.net.RegMr(comm, b.addr, uintptr(len(b.all)), ncclnet.NCCL_PTR_HOST)
	case kind == DMABufs:
		fd, err := syscall.Dup(b.gpu.FD())
		if err != nil {
			return 0, err
		}
		mr, result = r.net.RegMrDmaBuf(comm, b.addr, uintptr(len(b.all)), ncclnet.NCCL_PTR_CUDA, 0, fd)
		if err := syscall.Close(fd); err != nil {
			return 0, err
		}
	default:
		mr, result = r.net.RegMr(comm, b.addr, uintptr(len(b.all)), ncclnet.NCCL_PTR_CUDA)
	}
	return mr, r.failed("regMr", result)
}

// at returns n bytes of the buffer of a message, and its address.
func (b *buffers) at(number, n int) ([]byte, uintptr) {
	i := number%b.window*b.each + border
	return b.all[i : i+n], b.addr + uintptr(i)
}

// bordersIntact reports whether the border before the buffer of a message, and everything behind its first n bytes, are
// unwritten.
func (b *buffers) bordersIntact(number, n int) bool {
	i := number % b.window * b.each
	return zero(b.all[i:i+border]) && zero(b.all[i+border+n:i+b.each])
}

func (b *buffers) free() error {
	if b.gpu != nil {
		return b.gpu.Free()
	}
	return b.host.Free()
}
