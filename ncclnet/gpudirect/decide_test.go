package gpudirect

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/cuda"
)

// All combinations of the attributes 116, 124, 110 and of no CUDA in the process, with and without each way to register memory. The last
// column is what a table of NCCL's rules gives: attribute 110 concerns only memory that CUDA's virtual memory management mapped, and
// decides nothing here.
func TestAttributes(t *testing.T) {
	type offers struct{ both, peermem, dmabuf, neither string } // by what the machine has
	none := offers{"-", "-", "-", "-"}
	tests := []struct {
		gdr, dmabuf, vmm, loaded bool // 116, 124, 110
		want                     offers
	}{
		{false, false, false, false, none},
		{false, false, false, true, none},
		{false, false, true, false, none},
		{false, false, true, true, none},
		{false, true, false, false, none},
		{false, true, false, true, none},
		{false, true, true, false, none},
		{false, true, true, true, none},
		{true, false, false, false, none},
		{true, false, false, true, offers{"CUDA", "CUDA", "-", "-"}},
		{true, false, true, false, none},
		{true, false, true, true, offers{"CUDA", "CUDA", "-", "-"}},
		{true, true, false, false, none},
		{true, true, false, true, offers{"CUDA DMABUF", "CUDA", "DMABUF", "-"}},
		{true, true, true, false, none},
		{true, true, true, true, offers{"CUDA DMABUF", "CUDA", "DMABUF", "-"}},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		name := fmt.Sprintf("116=%t 124=%t 110=%t loaded=%t", tt.gdr, tt.dmabuf, tt.vmm, tt.loaded)
		seen[name] = true
		f := Facts{GPU: cuda.Attributes{GPUDirectRDMA: tt.gdr, DMABuf: tt.dmabuf, GPUDirectRDMAWithVMM: tt.vmm}}
		if !tt.loaded {
			f.CUDA = cuda.ErrNotLoaded
		}
		bits := func(peermem bool, without ...string) string {
			f.PeerMemory, f.NoDMABufs = peermem, without
			o, err := Decide(Auto, f)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			demanded, err := Decide(On, f)
			if refused := !o.CUDA && !o.DMABuf; refused != (err != nil) || !refused && demanded != o {
				t.Errorf("%s: NCCL_MESH_GDR=1 gives %+v, %v; auto gives %+v", name, demanded, err, o)
			}
			f.TCP = true
			if o, _ := Decide(Auto, f); o.CUDA || o.DMABuf {
				t.Errorf("%s: with lanes over TCP possible the offer is %+v", name, o)
			}
			f.TCP = false
			if o, err := Decide(Off, f); o.CUDA || o.DMABuf || err != nil {
				t.Errorf("%s: NCCL_MESH_GDR=0 gives %+v, %v", name, o, err)
			}
			switch {
			case o.CUDA && o.DMABuf:
				return "CUDA DMABUF"
			case o.CUDA:
				return "CUDA"
			case o.DMABuf:
				return "DMABUF"
			}
			return "-"
		}
		got := offers{bits(true), bits(true, "mlx5_1"), bits(false), bits(false, "mlx5_1")}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(offers{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(seen) != 16 {
		t.Errorf("the table has %d of 16 combinations", len(seen))
	}
}

// What the log says in each case.
func TestLines(t *testing.T) {
	all := cuda.Attributes{GPUDirectRDMA: true, DMABuf: true, GPUDirectRDMAWithVMM: true}
	noExport := cuda.Attributes{GPUDirectRDMA: true}
	const through = "data of GPUs goes through host memory: "
	const demanded = "NCCL_MESH_GDR=1 demands GPU memory that adapters can reach, and this is missing: "
	const correct = "; correct it or unset NCCL_MESH_GDR"
	const gb10 = "CUDA says that adapters cannot reach the memory of this GPU (GPU_DIRECT_RDMA_SUPPORTED is 0), as on GB10"
	const tcp = "a connection may get lanes over TCP, which cannot use GPU memory: NCCL_MESH_TRANSPORT=rdma leaves them out"
	const peermem = "the kernel module nvidia-peermem is not loaded (modprobe nvidia-peermem loads it), and "
	const export = "CUDA exports no DMA-BUFs (DMA_BUF_SUPPORTED is 0; the driver's open kernel modules can)"
	const register = "mlx5_0, mlx5_1 cannot register DMA-BUFs (Linux 5.12 and rdma-core 34, or newer, can)"
	without := []string{"mlx5_0", "mlx5_1"}
	tests := []struct {
		name  string
		s     Setting
		f     Facts
		level slog.Level
		want  string // the line, or the error
	}{
		{"off", Off, Facts{GPU: all, PeerMemory: true}, slog.LevelInfo, through + "NCCL_MESH_GDR is 0"},
		{"no CUDA", Auto, Facts{CUDA: cuda.ErrNotLoaded, TCP: true}, slog.LevelDebug, through + "CUDA is not loaded in this process"},
		{"CUDA fails", Auto, Facts{CUDA: &cuda.Error{Op: "cuCtxGetDevice", Result: 3}, TCP: true}, slog.LevelInfo, through + "cuCtxGetDevice: CUDA_ERROR_NOT_INITIALIZED (3)"},
		{"GB10", Auto, Facts{TCP: true, NoDMABufs: without}, slog.LevelInfo, through + gb10},
		{"TCP", Auto, Facts{GPU: all, PeerMemory: true, TCP: true}, slog.LevelInfo, through + tcp},
		{"TCP and more", Auto, Facts{GPU: noExport, TCP: true}, slog.LevelInfo, through + tcp + "; " + peermem + export},
		{"no export", Auto, Facts{GPU: noExport}, slog.LevelInfo, through + peermem + export},
		{"no registration", Auto, Facts{GPU: all, NoDMABufs: without}, slog.LevelInfo, through + peermem + register},
		{"both", Auto, Facts{GPU: all, PeerMemory: true}, slog.LevelInfo, "adapters can reach GPU memory (GPUDirect RDMA) by nvidia-peermem and DMA-BUFs"},
		{"peermem", Auto, Facts{GPU: noExport, PeerMemory: true}, slog.LevelInfo, "adapters can reach GPU memory (GPUDirect RDMA) by nvidia-peermem; not by DMA-BUFs: " + export},
		{"peermem alone", Auto, Facts{GPU: all, PeerMemory: true, NoDMABufs: without}, slog.LevelInfo, "adapters can reach GPU memory (GPUDirect RDMA) by nvidia-peermem; not by DMA-BUFs: " + register},
		{"DMA-BUFs", Auto, Facts{GPU: all}, slog.LevelInfo, "adapters can reach GPU memory (GPUDirect RDMA) by DMA-BUFs; not by nvidia-peermem, which is not loaded"},
		{"demanded", On, Facts{GPU: all, PeerMemory: true, TCPLeftOut: true}, slog.LevelInfo, "adapters can reach GPU memory (GPUDirect RDMA) by nvidia-peermem and DMA-BUFs; lanes over TCP are left out, because NCCL_MESH_GDR is 1"},
		{"demanded, no CUDA", On, Facts{CUDA: cuda.ErrNotLoaded}, 0, demanded + "CUDA is not loaded in this process; " + peermem + "without CUDA there are no DMA-BUFs" + correct},
		{"demanded, GB10", On, Facts{}, 0, demanded + gb10 + "; " + peermem + export + correct},
		{"demanded, nothing", On, Facts{TCP: true}, 0, demanded + gb10 + "; " + tcp + "; " + peermem + export + correct},
		{"demanded, no registration", On, Facts{GPU: all, NoDMABufs: without}, 0, demanded + peermem + register + correct},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Decide(tt.s, tt.f)
			got := o.Line
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != strings.HasPrefix(tt.want, demanded) || o.Level != tt.level {
				t.Errorf("error %v, level %v; want level %v", err, o.Level, tt.level)
			}
		})
	}
	if _, err := Decide(On, Facts{CUDA: errors.New("x")}); err == nil {
		t.Error("NCCL_MESH_GDR=1 is fulfilled without CUDA")
	}
}
