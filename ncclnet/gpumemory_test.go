package ncclnet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/cuda"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
)

// gpuWith returns GPUs with attributes.
func gpuWith(a cuda.Attributes) GPU {
	return GPU{Attributes: func() (cuda.Attributes, error) { return a, nil }}
}

// What NCCL may register is what the properties say. The answer holds for all communicators while the transport is open, whatever becomes
// of CUDA.
func TestGPUMemory(t *testing.T) {
	full := gpuWith(cuda.Attributes{GPUDirectRDMA: true, DMABuf: true})
	rdma := transport.GPUReach{PeerMemory: true}
	tests := []struct {
		name  string
		env   map[string]string
		gpu   GPU
		reach transport.GPUReach
		want  int
		line  string // what the log says of it
	}{
		{"no CUDA", nil, GPU{}, rdma, NCCL_PTR_HOST, ""},
		{"GB10", nil, gpuWith(cuda.Attributes{Integrated: true}), rdma, NCCL_PTR_HOST, "3 NET/Mesh : data of GPUs goes through host memory: CUDA says"},
		{"TCP", nil, full, transport.GPUReach{PeerMemory: true, TCP: true}, NCCL_PTR_HOST, "3 NET/Mesh : data of GPUs goes through host memory: a connection may get lanes over TCP"},
		{"both", nil, full, rdma, NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF, "3 NET/Mesh : adapters can reach GPU memory"},
		{"by address", nil, gpuWith(cuda.Attributes{GPUDirectRDMA: true}), rdma, NCCL_PTR_HOST | NCCL_PTR_CUDA, "3 NET/Mesh : adapters can reach GPU memory"},
		{"by DMA-BUF", nil, full, transport.GPUReach{}, NCCL_PTR_HOST | NCCL_PTR_DMABUF, "3 NET/Mesh : adapters can reach GPU memory"},
		{"off", map[string]string{"NCCL_MESH_GDR": "0"}, full, rdma, NCCL_PTR_HOST, "3 NET/Mesh : data of GPUs goes through host memory: NCCL_MESH_GDR is 0"},
		{"demanded", map[string]string{"NCCL_MESH_GDR": "1"}, full, rdma, NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF, "lanes over TCP are left out, because NCCL_MESH_GDR is 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNet(t)
			n.gpu, n.f.reach = tt.gpu, tt.reach
			for name, value := range tt.env {
				n.env[name] = value
			}
			ctx := n.init()
			log := n.logged()
			if about := strings.Count(log, "GPU"); tt.line == "" && about > 0 || !strings.Contains(log, tt.line) {
				t.Errorf("log without %q:\n%s", tt.line, log)
			}
			if wish := n.env["NCCL_MESH_GDR"]; wish == "1" && n.f.options.Transport != transport.TransportRDMA {
				t.Errorf("NCCL_MESH_GDR=1 opens the transport %q", n.f.options.Transport)
			}
			send, recv := n.connection(ctx)
			n.gpu = gpuWith(cuda.Attributes{}) // another GPU is current
			n.init()
			n.gpu = GPU{Attributes: func() (cuda.Attributes, error) { return cuda.Attributes{}, errors.New("gone") }}
			n.init()
			for range 2 {
				p, r := n.Properties(0)
				n.ok("getProperties", r)
				if p.PtrSupport != tt.want {
					t.Errorf("ptrSupport %d, want %d", p.PtrSupport, tt.want)
				}
			}
			for _, comm := range []Handle{send, recv} {
				result := func(bit int) Result {
					if tt.want&bit != 0 {
						return ncclSuccess
					}
					return ncclInvalidArgument
				}
				_, byAddress := n.RegMr(comm, page, page, NCCL_PTR_CUDA)
				_, byDMABuf := n.RegMrDmaBuf(comm, page, page, NCCL_PTR_CUDA, 0, 9)
				_, host := n.RegMr(comm, page, page, NCCL_PTR_HOST)
				_, unknown := n.RegMr(comm, page, page, NCCL_PTR_DMABUF)
				got := []Result{byAddress, byDMABuf, host, unknown}
				if diff := cmp.Diff([]Result{result(NCCL_PTR_CUDA), result(NCCL_PTR_DMABUF), ncclSuccess, ncclInvalidArgument}, got); diff != "" {
					t.Errorf("registrations by address, by DMA-BUF, of host memory, of type 4 (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// Where adapters have functions of their own for GPU memory and NCCL registers it by DMA-BUFs, NCCL sees the mesh at such a
// function, and flushes always.
func TestDataDirect(t *testing.T) {
	const usual, dma = "/sys/devices/pci0000:00/0000:01:00.0", "/sys/devices/pci0000:00/0000:02:00.0"
	full := gpuWith(cuda.Attributes{GPUDirectRDMA: true, DMABuf: true})
	for _, tt := range []struct {
		name, function string
		gpu            GPU
		path           string
		flush          bool
	}{
		{"by DMA-BUF", dma, full, dma, true},
		{"no such function", "", full, usual, false},
		{"by address only", dma, gpuWith(cuda.Attributes{GPUDirectRDMA: true}), usual, false},
		{"no GPU memory", dma, GPU{}, usual, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNet(t)
			n.f.device.DataDirect = tt.function
			n.gpu, n.f.reach = tt.gpu, transport.GPUReach{PeerMemory: true}
			n.init()
			if said := strings.Contains(n.logged(), "(Data Direct); NCCL sees the mesh at "+dma); said != tt.flush {
				t.Errorf("the log says so: %t", said)
			}
			p, r := n.Properties(0)
			n.ok("getProperties", r)
			if p.PCIPath != tt.path || p.ForceFlush != tt.flush {
				t.Errorf("PCI path %q, flush %t, want %q, %t", p.PCIPath, p.ForceFlush, tt.path, tt.flush)
			}
		})
	}
}

// A refusal says what was asked, what is accepted, and why.
func TestGPUMemoryRefused(t *testing.T) {
	n := newTestNet(t)
	n.gpu, n.f.reach = gpuWith(cuda.Attributes{GPUDirectRDMA: true, DMABuf: true}), transport.GPUReach{}
	send, _ := n.connection(n.init())
	n.logged()
	n.RegMr(send, page, page, NCCL_PTR_CUDA)
	n.RegMr(send, page, page, 8)
	want := "2 NET/Mesh : regMr: invalid argument: GPU memory (NCCL_PTR_CUDA) by its address; getProperties offers NCCL_PTR_HOST (1), NCCL_PTR_DMABUF (4): " +
		"adapters can reach GPU memory (GPUDirect RDMA) by DMA-BUFs; not by nvidia-peermem, which is not loaded (ncclInvalidArgument)\n" +
		"2 NET/Mesh : regMr: invalid argument: memory type 8; there are NCCL_PTR_HOST (1) and NCCL_PTR_CUDA (2) (ncclInvalidArgument)"
	if diff := cmp.Diff(want, n.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	n = newTestNet(t)
	send, _ = n.connection(n.init())
	n.logged()
	n.RegMrDmaBuf(send, page, page, NCCL_PTR_CUDA, 0, 9)
	want = "2 NET/Mesh : regMrDmaBuf: invalid argument: GPU memory (NCCL_PTR_CUDA) by a DMA-BUF; getProperties offers NCCL_PTR_HOST (1): " +
		"data of GPUs goes through host memory: CUDA is not loaded in this process (ncclInvalidArgument)"
	if diff := cmp.Diff(want, n.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// Where GPU memory is demanded and cannot be used, init fails, with one error, and leaves nothing open.
func TestGPUMemoryDemanded(t *testing.T) {
	n := newTestNet(t)
	n.env["NCCL_MESH_GDR"] = "1"
	n.f.reach.NoDMABufs = []string{"rocep1s0f0"}
	n.gpu = gpuWith(cuda.Attributes{DMABuf: true})
	if _, r := n.Init(n.logger(), Caller{}, -1); r != ncclInvalidUsage {
		t.Errorf("init: %v, want ncclInvalidUsage", r)
	}
	if !n.f.closed {
		t.Error("the transport is still open")
	}
	log := strings.Split(n.logged(), "\n")
	errs := 0
	for _, line := range log {
		if strings.HasPrefix(line, fmt.Sprint(NCCL_LOG_WARN)) {
			errs++
			for _, cause := range []string{"NCCL_MESH_GDR=1", "GPU_DIRECT_RDMA_SUPPORTED is 0", "nvidia-peermem is not loaded", "rocep1s0f0 cannot register DMA-BUFs"} {
				if !strings.Contains(line, cause) {
					t.Errorf("the error does not name %q: %s", cause, line)
				}
			}
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1:\n%s", errs, strings.Join(log, "\n"))
	}
	n.f.refuse["open"] = errors.New("no usable port")
	n.Init(n.logger(), Caller{}, -1)
	if log := n.logged(); !strings.Contains(log, "no usable port; NCCL_MESH_GDR=1 leaves out lanes over TCP, as NCCL_MESH_TRANSPORT=rdma does") {
		t.Errorf("log: %s", log)
	}
}

// The transport asks CUDA about memory, when it registers some.
func TestGPUOptions(t *testing.T) {
	n := newTestNet(t)
	n.init()
	failed := errors.New("no context")
	n.gpu = GPU{Buffer: func(addr uintptr) (uint64, bool) { return uint64(addr) + 1, true }, Flush: func() error { return failed }}
	if number, known := n.f.options.GPUBuffer(41); number != 42 || !known {
		t.Errorf("the allocation is %d, %t", number, known)
	}
	if err := n.f.options.FlushGPU(); !errors.Is(err, failed) {
		t.Errorf("flush: %v", err)
	}
}

// In a process without CUDA nothing is known, and nothing is loaded.
func TestWithoutCUDA(t *testing.T) {
	g := CUDA()
	if _, err := g.Attributes(); !errors.Is(err, cuda.ErrNotLoaded) {
		t.Errorf("attributes: %v", err)
	}
	if _, known := g.Buffer(page); known {
		t.Error("memory is known")
	}
	if err := g.Flush(); !errors.Is(err, cuda.ErrNotLoaded) {
		t.Errorf("flush: %v", err)
	}
	if _, err := (GPU{}).attributes(); !errors.Is(err, cuda.ErrNotLoaded) {
		t.Errorf("attributes of none: %v", err)
	}
}

// NCCL's own one-sided back ends are named where they would be used.
func TestBypass(t *testing.T) {
	const both = "NCCL_GIN_TYPE=0 and NCCL_NUM_RMA_CTX=0 keep programs from it"
	tests := []struct {
		name    string
		vmm     bool
		tcp     bool
		version int
		env     map[string]string
		want    string // the end of the line
	}{
		{"GB10", false, false, 23007, nil, ""},
		{"older", true, false, 22903, nil, ""},
		{"unknown version", true, false, 0, nil, ""},
		{"no adapters", true, true, 23007, nil, ""},
		{"first release", true, false, 22907, nil, both},
		{"newer", true, false, 23007, nil, both},
		{"one set", true, false, 23007, map[string]string{"NCCL_GIN_TYPE": "0"}, ": NCCL_NUM_RMA_CTX=0 keeps programs from it"},
		{"set otherwise", true, false, 23007, map[string]string{"NCCL_GIN_TYPE": "2", "NCCL_NUM_RMA_CTX": "1"}, both},
		{"both set", true, false, 23007, map[string]string{"NCCL_GIN_TYPE": "0", "NCCL_NUM_RMA_CTX": "0"}, ""},
	}
	for _, tt := range tests {
		n := newTestNet(t)
		n.gpu = gpuWith(cuda.Attributes{GPUDirectRDMAWithVMM: tt.vmm})
		n.f.device = topology.Device{TCP: tt.tcp}
		for name, value := range tt.env {
			n.env[name] = value
		}
		for range 2 { // said once
			_, r := n.Init(n.logger(), Caller{Version: tt.version}, -1)
			n.ok("init", r)
		}
		line := ""
		for l := range strings.SplitSeq(n.logged(), "\n") {
			if strings.Contains(l, "one-sided") {
				line += l
			}
		}
		if !strings.HasSuffix(line, tt.want) || tt.want == "" && line != "" || strings.Count(line, "one-sided") > 1 {
			t.Errorf("%s: %q, want an end of %q", tt.name, line, tt.want)
		}
	}
}
