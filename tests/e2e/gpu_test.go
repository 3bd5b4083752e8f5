package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// A gpu is how adapters reach the memory of the GPUs of all nodes, which the processors cannot touch, and what is registered of it.
type gpu struct {
	memory  string   // of messages: cuda or dmabuf
	peermem bool     // the nodes have nvidia-peermem
	env     []string // of the GPU
}

// What machines have: both ways, of which NCCL takes DMA-BUFs where it can, or one of them.
var (
	gpuBoth    = gpu{"dmabuf", true, nil}
	gpuAddress = gpu{"cuda", true, []string{"FAKECUDA_DMABUF=0"}}
	gpuDMABuf  = gpu{"dmabuf", false, nil}
)

func (g gpu) String() string {
	return fmt.Sprintf("%s, peermem %v %s", g.memory, g.peermem, strings.Join(g.env, " "))
}

// topology is that of nodes with such GPUs. The nodes are those of one letter that it names.
func (g gpu) topology(topology string) string {
	var nodes strings.Builder
	for _, node := range strings.Split("abcdef", "") {
		if g.peermem && strings.Contains(topology, "port "+node+" ") {
			fmt.Fprintf(&nodes, "node %s peermem\n", node)
		}
	}
	return nodes.String() + topology
}

// args are the driver's.
func (g gpu) args(args string) []string {
	return append(strings.Fields(args), "--memory", g.memory, "--libcuda", filepath.Join(built, "fakecuda/libcuda.so.1"))
}

// late is a fault of every adapter: what it writes to GPU memory shows when it reads there, or much later than the processors of a GPU would
// look for it.
const late = "late time=20ms"

// reaches is what the log says of such GPUs.
const reaches = `NET/Mesh : adapters can reach GPU memory \(GPUDirect RDMA\) by `

// Every version of the interface carries messages that lie in GPU memory and keeps NCCL's contract. Version 5 has no DMA-BUFs: there NCCL
// registers by address.
func TestGPUVersions(t *testing.T) {
	tests := []struct {
		gpu    gpu
		says   string
		sample int // the version that a sample has
	}{
		{gpuBoth, `nvidia-peermem and DMA-BUFs$`, 12},
		{gpuAddress, `nvidia-peermem; not by DMA-BUFs: `, 0},
		{gpuDMABuf, `DMA-BUFs; not by nvidia-peermem, which is not loaded$`, 0},
	}
	for _, tt := range tests {
		for version := 5; version <= 12; version++ {
			if version == 5 && !tt.gpu.peermem {
				continue
			}
			t.Run(fmt.Sprintf("%v v%d", tt.gpu, version), func(t *testing.T) {
				if version != tt.sample {
					require.Full(t, "tests/e2e TestGPUFailover and the same test of version 12 with DMA-BUFs")
				}
				t.Parallel()
				f := newFabric(t, tt.gpu.topology(triangle))
				f.suffer(late)
				j := f.start(spec{env: tt.gpu.env, args: tt.gpu.args(fmt.Sprintf(
					"--api v%d --work allreduce,alltoall,soak,contract --messages 100 --max 1M --factor 16 --iters 2", version))}).ok()
				out := j.rank("a").output()
				if n := strings.Count(out, "# Out of bounds values : 0 OK"); n != 2 {
					j.errorf("%d tables without an error, want 2", n)
				}
				if passed, failed := strings.Count(out, "PASS  "), strings.Count(out, "FAIL  "); passed < 30 || failed != 0 {
					j.errorf("%d cases of the contract passed and %d failed", passed, failed)
				}
				for _, node := range j.f.Nodes {
					j.must(node, reaches+tt.says)
				}
			})
		}
	}
}

// A cable that is lost leaves every message in GPU memory as it was sent: data goes over the lanes that are left, and a flush reaches what came by
// each.
func TestGPUFailover(t *testing.T) {
	t.Parallel()
	o, g := over{two, qps2}, gpuAddress
	f := newFabric(t, g.topology(o.topology()))
	f.outlives(spec{env: slices.Concat(o.env, g.env), args: g.args(strings.Join(f.endless(soaking+" --api v8"), " "))}, []string{"unplug a:rab1"}).lose(`rab1`)
}

// GPU memory is registered late, from the DMA-BUF that NCCL has closed, with the device of a port that comes up later.
func TestGPUPortComesUp(t *testing.T) {
	t.Parallel()
	g := gpuDMABuf
	f := newFabric(t, g.topology(four.topology()))
	f.suffer("unplug a:rab1")
	f.off("a", "ab1")
	j := f.start(spec{env: g.env, args: g.args(strings.Join(f.endless("--work soak --max 64K"), " "))}) // its communicators stay
	j.await("a", `a -> b conn \d+: lane 0 [^,]*(, [^,]*){2}$`)
	j.suffer("moves", "plug a:rab1")
	j.await("a", `a -> b conn \d+: lane \d rab1:1 -> rab1:1 has joined`)
	j.suffer("moves", "moves")
	j.enough().ok().unbroken()
}

// Nodes without a common cable have their messages in GPU memory at both ends; the nodes between carry them through memory of their own.
func TestGPURelay(t *testing.T) {
	t.Parallel()
	f := newFabric(t, gpuBoth.topology(ring4.topology()))
	f.suffer(late)
	j := f.start(spec{
		env:  slices.Concat(unhurried, gpuBoth.env, []string{ring4.alone()}),
		args: gpuBoth.args("--min 8 --max 1M --factor 32 --iters 4 --work alltoall"), // messages up to 2 KiB go in frames, larger ones by the relay's READs and WRITEs
	}).ok()
	j.must("a", reaches)
	if got := j.relays("a -> c"); got != "b" && got != "d" && got != "b d" {
		j.errorf("a -> c goes through %q", got)
	}
}

// A node whose GPU adapters can reach works with one that copies through host memory: each decides for itself.
func TestGPUAndHost(t *testing.T) {
	t.Parallel()
	f := newFabric(t, gpuBoth.topology(over{cabling: two}.topology()))
	j := f.start(spec{args: strings.Fields("--work allreduce,soak --messages 60 --max 256K --factor 32"), argsOn: map[string][]string{"a": gpuBoth.args("")}}).ok()
	j.must("a", reaches)
	if n := j.rank("b").count(`GPU`); n != 0 {
		j.errorf("node b, without CUDA, says something of GPU memory")
	}
}

// GPU memory is not offered where something is missing, and the log says what in one line.
func TestGPUNotOffered(t *testing.T) {
	const through = `INFO NET/Mesh : data of GPUs goes through host memory: `
	tests := []struct {
		name    string
		peermem bool
		env     []string
		fault   string
		says    string
	}{
		{"a GB10", true, []string{"FAKECUDA_GDR=0", "FAKECUDA_DMABUF=0"}, "", through + `CUDA says `},
		{"an adapter without DMA-BUFs", false, nil, "verb name=reg_dmabuf_mr errno=EOPNOTSUPP", through + `the kernel module nvidia-peermem is not loaded.*cannot register DMA-BUFs`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, gpu{peermem: tt.peermem}.topology(over{cabling: two}.topology()))
			if tt.fault != "" {
				f.suffer(tt.fault)
			}
			j := f.start(spec{env: tt.env, args: gpu{memory: "cuda"}.args("--work allreduce --max 8")}).wait()
			for _, r := range j.ranks {
				if r.status != 1 {
					j.errorf("rank on %s: status %d", r.node, r.status)
				}
				if n := r.count(tt.says); n != 1 {
					j.errorf("node %s says %q %d times", r.node, tt.says, n)
				}
				if r.count(`does not take the pointers of --memory \(ptrSupport 1, 3 is needed\)`) != 1 {
					j.errorf("node %s offers GPU memory", r.node)
				}
			}
		})
	}
}
