package nccl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
)

// A gpuWay is how adapters reach the memory of the pretend GPU.
type gpuWay struct {
	name    string
	peermem bool
	env     []string
	says    string // in the plugin's log
}

// NCCL takes DMA-BUFs where it can.
var gpuWays = []gpuWay{
	{"DMA-BUF", false, []string{"FAKEGPU_DMABUF=1"}, "by DMA-BUFs; not by nvidia-peermem"},
	{"peermem", true, nil, "by nvidia-peermem; not by DMA-BUFs"},
	{"both", true, []string{"FAKEGPU_DMABUF=1"}, "by nvidia-peermem and DMA-BUFs"},
}

// topology is that of nodes with such GPUs.
func (w gpuWay) topology(m fabric.Mesh) string {
	text := m.Topology()
	for _, n := range m.Nodes {
		if w.peermem {
			text = strings.Replace(text, "node "+n+"\n", "node "+n+" peermem\n", 1)
		}
	}
	return text
}

// job is one over RDMA whose GPUs adapters reach. GPU and adapter are not near each other, as NCCL counts.
func (w gpuWay) job(rank string, steps ...string) Job {
	j := AllLanes[0].Job(rank, plugin(), steps...)
	j.Env = slices.Concat(j.Env, w.env, []string{"FAKEGPU_GDR=1", "NCCL_NET_GDR_LEVEL=SYS", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET"})
	return j
}

var gpuChannelLine = regexp.MustCompile(`NCCL INFO Channel \S+ : \d+\[\d+\] -> \d+\[\d+\] \[(send|receive)\] via NET/Mesh/\d+(\S*)`)

// direct holds that a rank's plugin says that adapters reach GPU memory, and that NCCL uses it, for what is sent and what is received.
func (w gpuWay) direct(t *testing.T, r Result) {
	t.Helper()
	if !strings.Contains(r.Output, "NET/Mesh : adapters can reach GPU memory (GPUDirect RDMA) "+w.says) {
		t.Errorf("%s does not say that adapters reach GPU memory %q:\n%s", r.Node, w.says, r.Output)
	}
	lines := map[string]int{}
	for _, m := range gpuChannelLine.FindAllStringSubmatch(r.Output, -1) {
		lines[m[1]]++
		if !strings.HasPrefix(m[2], "/GDRDMA") {
			t.Errorf("%s: a channel without GPU memory: %s", r.Node, m[0])
		}
	}
	if lines["send"] == 0 || lines["receive"] == 0 {
		t.Errorf("%s: no lines of channels: %v\n%s", r.Node, lines, r.Output)
	}
}

// NCCL's buffers lie in GPU memory, which neither NCCL's threads nor the plugin can touch, and every result is right. A compute capability
// below 9.0 makes NCCL flush, and so does its setting.
func TestGPUDirect(t *testing.T) {
	tests := []struct {
		way    gpuWay
		env    []string
		late   bool // what adapters write to GPU memory shows later, or when they read there
		sample bool
	}{
		{gpuWays[0], []string{"NCCL_NET_FORCE_FLUSH=1"}, true, true},
		{gpuWays[0], nil, false, false},
		{gpuWays[1], []string{"FAKEGPU_CC=8.0"}, true, false},
		{gpuWays[2], []string{"NCCL_NET_GDR_READ=0"}, false, false},
	}
	for _, v := range Versions {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s/%s %s", v.Name, tt.way.name, strings.Join(tt.env, " ")), func(t *testing.T) {
				sampled(t, v, tt.sample)
				var steps []string
				for i, c := range choices {
					if full || i == 0 || i == 4 { // ring simple, and what NCCL takes of itself
						steps = append(steps, c.session(collectives(1, 1000, 65537))...)
					}
				}
				j := tt.way.job(program(t, v), steps...)
				j.Env = append(j.Env, tt.env...)
				f := up(t, tt.way.topology(fabric.Triangle()))
				if tt.late {
					if _, err := f.Fault("late", "time=2ms"); err != nil {
						t.Fatal(err)
					}
				}
				for _, r := range run(t, f, j) {
					if !slices.Contains(tt.env, "NCCL_NET_GDR_READ=0") { // there what is sent comes from host memory
						tt.way.direct(t, r)
					}
				}
			})
		}
	}
}

// NCCL decides for each direction whether its buffers lie in GPU memory: by what CUDA and the plugin say, and by how far GPU and adapter
// are from each other.
func TestGPUDirectOrNot(t *testing.T) {
	const (
		below   = "pci0000:00/0000:00:01.0/0000:01:00.0/" // a PCIe switch
		bus     = "0000:04:00.0"                          // where the GPU is
		near    = below + "0000:02:00.0/0000:03:00.0"     // an adapter below the same switch,
		far     = "pci0000:00/0000:00:02.0/0000:05:00.0"  // and one that reaches it through the processor
		reached = "adapters can reach GPU memory"
		host    = "data of GPUs goes through host memory: "
	)
	tests := []struct {
		name          string
		adapter       string
		env           []string
		says          string
		send, receive bool
		sample        bool
	}{
		{"one switch", near, nil, reached, true, true, false},
		{"through the processor", far, nil, reached, false, false, false},
		{"through the processor, with the level PHB", far, []string{"NCCL_NET_GDR_LEVEL=PHB"}, reached, true, true, false},
		{"one switch, with the level LOC", near, []string{"NCCL_NET_GDR_LEVEL=LOC"}, reached, false, false, false},
		{"nothing is read from GPU memory", near, []string{"NCCL_NET_GDR_READ=0"}, reached, false, true, false},
		{"no DMA-BUFs for NCCL, and no peermem", near, []string{"NCCL_DMABUF_ENABLE=0"}, reached, false, false, false},
		{"a GPU whose driver exports none", near, []string{"FAKEGPU_DMABUF=0"}, host + "the kernel module nvidia-peermem is not loaded", false, false, false},
		{"a GB10", near, []string{"FAKEGPU_GDR=0"}, host + "CUDA says", false, false, true},
		{"TCP is possible", near, []string{"NCCL_MESH_TRANSPORT=auto"}, host + "a connection may get lanes over TCP", false, false, false},
		{"switched off", near, []string{"NCCL_MESH_GDR=0"}, host + "NCCL_MESH_GDR is 0", false, false, false},
	}
	for _, v := range Versions {
		for _, tt := range tests {
			t.Run(v.Name+"/"+tt.name, func(t *testing.T) {
				sampled(t, v, tt.sample)
				f := up(t, fmt.Sprintf("port node-a r0 netdev p0 addr 192.168.1.1/24 pci %[1]s\nport node-b r0 netdev p0 addr 192.168.1.2/24 pci %[1]s\nlink node-a:r0 node-b:r0\n", tt.adapter))
				if err := AddGPUsAt(f, "devices/"+below+"0000:02:01.0/"+bus); err != nil {
					t.Fatal(err)
				}
				j := AllLanes[0].Job(program(t, v), plugin(), "init", "check allreduce f32 sum 70000", "check alltoall f32 sum 1000", "destroy")
				j.Env = slices.Concat(j.Env, []string{"FAKEGPU_GDR=1", "FAKEGPU_DMABUF=1", "FAKEGPU_BUSID=" + bus, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET"}, tt.env)
				for _, r := range run(t, f, j) {
					if !strings.Contains(r.Output, "NET/Mesh : "+tt.says) {
						t.Errorf("%s does not say %q:\n%s", r.Node, tt.says, r.Output)
					}
					found := gpuChannelLine.FindAllStringSubmatch(r.Output, -1)
					for _, m := range found {
						if got, want := strings.HasPrefix(m[2], "/GDRDMA"), map[string]bool{"send": tt.send, "receive": tt.receive}[m[1]]; got != want {
							t.Errorf("%s: GPU memory %v, want %v: %s", r.Node, got, want, m[0])
						}
					}
					if len(found) < 2 {
						t.Errorf("%s has %d lines of channels:\n%s", r.Node, len(found), r.Output)
					}
				}
			})
		}
	}
}
