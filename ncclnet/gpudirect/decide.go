package gpudirect

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"ncclmesh/cuda"
)

// A Setting is the value of NCCL_MESH_GDR.
type Setting string

// Values of NCCL_MESH_GDR. The zero value is Auto.
const (
	Auto Setting = ""  // offer GPU memory where all that it takes is there
	Off  Setting = "0" // never offer it
	On   Setting = "1" // fail unless it can be offered
)

// Facts are what the decision depends on.
type Facts struct {
	CUDA       error           // why CUDA does not answer; cuda.ErrNotLoaded if the process has none; nil: GPU is its answer
	GPU        cuda.Attributes // what the GPU can do
	PeerMemory bool            // nvidia-peermem is loaded
	NoDMABufs  []string        // RDMA devices in use that cannot register a DMA-BUF
	TCP        bool            // a connection may get lanes over TCP
	TCPLeftOut bool            // lanes over TCP are left out because of NCCL_MESH_GDR
}

// An Offer is the decision.
type Offer struct {
	CUDA   bool       // NCCL may register GPU memory by its address
	DMABuf bool       // NCCL may register GPU memory by a DMA-BUF
	Level  slog.Level // of Line
	Line   string     // says what is offered, or why nothing is
}

// Decide decides what NCCL is offered. With On it fails unless something is; the error names everything that is missing.
func Decide(s Setting, f Facts) (Offer, error) {
	if s == Off {
		return refused(slog.LevelInfo, "NCCL_MESH_GDR is 0"), nil
	}
	missing := f.missing()
	switch {
	case len(missing) == 0:
		return f.offer(), nil
	case s == On:
		return Offer{}, fmt.Errorf("NCCL_MESH_GDR=1 demands GPU memory that adapters can reach, and this is missing: %s; correct it or unset NCCL_MESH_GDR", strings.Join(missing, "; "))
	case errors.Is(f.CUDA, cuda.ErrNotLoaded):
		return refused(slog.LevelDebug, missing[0]), nil
	case f.CUDA != nil || !f.GPU.GPUDirectRDMA: // nothing that a user can change would help
		return refused(slog.LevelInfo, missing[0]), nil
	}
	return refused(slog.LevelInfo, strings.Join(missing, "; ")), nil
}

func refused(level slog.Level, why string) Offer {
	return Offer{Level: level, Line: "data of GPUs goes through host memory: " + why}
}

// missing returns what an offer lacks, with the remedy. A cause that no setting removes comes first.
func (f *Facts) missing() (all []string) {
	switch {
	case f.CUDA != nil:
		all = append(all, f.CUDA.Error())
	case !f.GPU.GPUDirectRDMA:
		all = append(all, "CUDA says that adapters cannot reach the memory of this GPU (GPU_DIRECT_RDMA_SUPPORTED is 0), as on GB10")
	}
	if f.TCP {
		all = append(all, "a connection may get lanes over TCP, which cannot use GPU memory: NCCL_MESH_TRANSPORT=rdma leaves them out")
	}
	if f.PeerMemory {
		return all
	}
	if lacks := f.lacksDMABuf(); lacks != "" {
		all = append(all, "the kernel module nvidia-peermem is not loaded (modprobe nvidia-peermem loads it), and "+lacks)
	}
	return all
}

// lacksDMABuf returns why DMA-BUFs cannot be used, or "".
func (f *Facts) lacksDMABuf() string {
	switch {
	case f.CUDA != nil:
		return "without CUDA there are no DMA-BUFs"
	case !f.GPU.DMABuf:
		return "CUDA exports no DMA-BUFs (DMA_BUF_SUPPORTED is 0; the driver's open kernel modules can)"
	case len(f.NoDMABufs) > 0:
		return strings.Join(f.NoDMABufs, ", ") + " cannot register DMA-BUFs (Linux 5.12 and rdma-core 34, or newer, can)"
	}
	return ""
}

// offer returns the offer where nothing is missing.
func (f *Facts) offer() Offer {
	o := Offer{CUDA: f.PeerMemory, DMABuf: f.lacksDMABuf() == "", Level: slog.LevelInfo}
	by := "nvidia-peermem and DMA-BUFs"
	switch {
	case !o.DMABuf:
		by = "nvidia-peermem; not by DMA-BUFs: " + f.lacksDMABuf()
	case !o.CUDA:
		by = "DMA-BUFs; not by nvidia-peermem, which is not loaded"
	}
	o.Line = "adapters can reach GPU memory (GPUDirect RDMA) by " + by
	if f.TCPLeftOut {
		o.Line += "; lanes over TCP are left out, because NCCL_MESH_GDR is 1"
	}
	return o
}
