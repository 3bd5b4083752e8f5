package ncclnet

import (
	"context"
	"fmt"
	"strings"

	"ncclmesh/cuda"
	"ncclmesh/ncclnet/config"
	"ncclmesh/ncclnet/gpudirect"
	"ncclmesh/transport"
)

// A GPU answers questions about the GPUs of the process and their memory. Its functions may be called from any thread. The zero value
// stands for a process without CUDA.
type GPU struct {
	Attributes func() (cuda.Attributes, error)
	Buffer     func(addr uintptr) (number uint64, known bool) // as transport.Options.GPUBuffer
	Flush      func() error                                   // as transport.Options.FlushGPU
}

// CUDA returns the GPUs as CUDA knows them, where the program has loaded it. That is looked up at each call, because the program may load
// it later.
func CUDA() GPU {
	return GPU{
		Attributes: func() (cuda.Attributes, error) {
			d, err := cuda.Loaded()
			if err != nil {
				return cuda.Attributes{}, err
			}
			return d.Attributes()
		},
		Buffer: cuda.BufferID,
		Flush:  cuda.FlushWrites,
	}
}

// attributes returns what the GPU can do: the one of the calling thread's context, or each of the process.
func (g GPU) attributes() (cuda.Attributes, error) {
	if g.Attributes == nil {
		return cuda.Attributes{}, cuda.ErrNotLoaded
	}
	return g.Attributes()
}

// offerGPUMemory decides whether NCCL is offered GPU memory while the transport is open, and logs it. The decision holds for all
// communicators and all devices of the process, because NCCL may ask at any time and wants the same answer.
func (p *Process) offerGPUMemory(c config.Config, r transport.GPUReach) (gpudirect.Offer, cuda.Attributes, error) {
	gpu, why := p.host.GPU.attributes()
	offer, err := gpudirect.Decide(c.GDR, gpudirect.Facts{
		CUDA: why, GPU: gpu, PeerMemory: r.PeerMemory, NoDMABufs: r.NoDMABufs, TCP: r.TCP, TCPLeftOut: c.TCPLeftOut,
	})
	if err != nil {
		return offer, gpu, fmt.Errorf("%w: %w", errUsage, err)
	}
	p.log.Log(context.Background(), offer.Level, offer.Line)
	return offer, gpu, nil
}

// ptrSupport returns the types of memory that NCCL may register, as the bits of its property.
func (m *mesh) ptrSupport() int {
	bits := NCCL_PTR_HOST
	if m.offer.CUDA {
		bits |= NCCL_PTR_CUDA
	}
	if m.offer.DMABuf {
		bits |= NCCL_PTR_DMABUF
	}
	return bits
}

// ptrNames are NCCL's names of the bits, in their order.
var ptrNames = []string{"NCCL_PTR_HOST", "NCCL_PTR_CUDA", "NCCL_PTR_DMABUF"}

// checkType returns an error unless memory of NCCL's type may be registered with a call that takes one of two bits: CUDA by its address,
// DMABUF by a descriptor.
func (n *Net) checkType(ptrType, bit int) error {
	m := n.process.mesh.Load()
	if m == nil {
		return errNotOpen
	}
	offered := m.ptrSupport()
	switch {
	case ptrType == NCCL_PTR_HOST, ptrType == NCCL_PTR_CUDA && offered&bit != 0:
		return nil
	case ptrType != NCCL_PTR_CUDA:
		return fmt.Errorf("%w: memory type %d; there are NCCL_PTR_HOST (%d) and NCCL_PTR_CUDA (%d)", errArgument, ptrType, NCCL_PTR_HOST, NCCL_PTR_CUDA)
	}
	var names []string
	for i, name := range ptrNames {
		if offered&(1<<i) != 0 {
			names = append(names, fmt.Sprintf("%s (%d)", name, 1<<i))
		}
	}
	how := "by its address"
	if bit == NCCL_PTR_DMABUF {
		how = "by a DMA-BUF"
	}
	return fmt.Errorf("%w: GPU memory (NCCL_PTR_CUDA) %s; getProperties offers %s: %s", errArgument, how, strings.Join(names, ", "), m.offer.Line)
}

// bypass returns a warning where NCCL may send data of GPUs by its own RDMA code, which knows nothing of the mesh's cables: its one-sided
// back ends, which NCCL offers from 2.29.7 on beside any network plugin where GPUs can use RDMA with memory of CUDA's virtual memory
// management. It returns "" where there is no such danger.
//
// Where the mesh offers one-sided communication itself, NCCL from 2.30.7 on takes that for its host RMA and for its GIN proxy, but still prefers
// GPU-initiated networking that its own code does without a proxy, if the adapters can.
func (m *mesh) bypass(c Caller, getenv func(string) string) string {
	if !m.gpu.GPUDirectRDMAWithVMM || m.device.TCP || c.Version < nccl2_29_7 {
		return ""
	}
	if m.offersRMA() && c.Version >= nccl2_30_7 {
		switch strings.TrimSpace(getenv("NCCL_GIN_TYPE")) {
		case "0", "2":
			return ""
		}
		return "GPU-initiated networking that adapters do without a proxy (GDAKI), which NCCL prefers where they can, does not use the mesh and may choose " +
			"cables that do not lead to the peer: NCCL_GIN_TYPE=2 makes NCCL use its proxy, which uses the mesh"
	}
	_, on := oneSidedSwitches(getenv)
	if len(on) == 0 {
		return ""
	}
	return "NCCL's own one-sided communication (symmetric windows, ncclPutSignal, GPU-initiated networking) does not use the mesh and may choose cables that do not lead to the peer: " +
		keepFromIt(on)
}

// oneSidedSwitches returns the settings that keep programs from one-sided communication, as NAME=0: the ones in effect, and the others.
func oneSidedSwitches(getenv func(string) string) (off, on []string) {
	for _, name := range []string{"NCCL_GIN_TYPE", "NCCL_NUM_RMA_CTX"} {
		if setting := name + "=0"; strings.TrimSpace(getenv(name)) == "0" {
			off = append(off, setting)
		} else {
			on = append(on, setting)
		}
	}
	return off, on
}

// keepFromIt returns the text that settings of oneSidedSwitches keep programs from one-sided communication.
func keepFromIt(settings []string) string {
	verb := " keeps"
	if len(settings) > 1 {
		verb = " keep"
	}
	return strings.Join(settings, " and ") + verb + " programs from it"
}

// nccl2_29_7 is the first NCCL whose own one-sided back ends work beside a network plugin.
const nccl2_29_7 = 22907
