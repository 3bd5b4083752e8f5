package comm_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"ncclmesh/comm"
	"ncclmesh/cuda"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// Buffers may be GPU memory, which adapters find by its address or by a DMA-BUF. After a wait the GPU sees all data.
func TestGPUMemory(t *testing.T) {
	for _, byDMABuf := range []bool{false, true} {
		name := "by address"
		if byDMABuf {
			name = "by DMA-BUF"
		}
		t.Run(name, transporttest.Simulated(func(t *testing.T) {
			const size = 1 << 20
			mem := [2]*adapter.GPUMemory{transporttest.GPUMemory(t, size), transporttest.GPUMemory(t, size)} // freed after the ranks have closed
			ranks := start(t, 2, map[string]string{"NCCL_MESH_TRANSPORT": "rdma"})
			conns := make([]*comm.Connection, 2)
			for i, r := range ranks {
				region := comm.Region{Kind: lane.GPUMemory, Addr: mem[i].Addr(), Length: size}
				if byDMABuf {
					mem[i].NoPeer()
					region.DMABuf = &comm.DMABuf{FD: mem[i].FD()}
				}
				if err := r.Connect(1-i, 0, region); err != nil {
					t.Fatal(err)
				}
			}
			must(t, each(ranks, func(r *rank) (err error) {
				if err := r.Setup(); err != nil {
					return err
				}
				conns[r.number], err = r.Connection(1-r.number, 0)
				return err
			}))
			for round := range 10 {
				transporttest.Fill(mem[0].Bytes()[:size/2], round)
				if err := errors.Join(conns[0].PutWithSignal(size/2, 0, size/2), conns[1].Wait(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(mem[0].Bytes()[:size/2], mem[1].Bytes()[size/2:]) {
					t.Fatalf("round %d: the GPU does not see the data", round)
				}
			}
		}))
	}
}

// A signal word in GPU memory is refused, because the processor applies signals; so is GPU memory where the processor moves the data.
func TestBadGPUMemory(t *testing.T) {
	for _, tt := range []struct {
		over  string
		want  comm.Result
		words []string
	}{
		{"rdma", comm.ResultInvalidArgument, []string{"a signal word in GPU memory: only words in host memory can be signalled"}},
		{"tcp", comm.ResultInvalidUsage, []string{"of GPU memory", "the processor moves the bytes of lanes"}},
	} {
		t.Run(tt.over, transporttest.Simulated(func(t *testing.T) {
			mem := transporttest.GPUMemory(t, 4096)
			ranks := start(t, 2, map[string]string{"NCCL_MESH_TRANSPORT": tt.over})
			connectAll(t, ranks)
			for i, err := range each(ranks, func(r *rank) error {
				b, err := r.Register(comm.Region{Kind: lane.GPUMemory, Addr: mem.Addr(), Length: 4096})
				if err == nil {
					err = b.Signal(1-r.number, 0, onesided.SignalInc, 0)
				}
				return err
			}) {
				check(t, ranks[i].runs.Name, err, tt.want, tt.words...)
			}
		}))
	}
}

func TestKindsOfMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		kind := cuda.Unknown
		runs, machine := transporttest.WorldOf(t).Start()
		p := comm.NewProcess(comm.Host{
			Getenv: func(string) string { return "" }, Environ: func() []string { return nil }, Machine: machine,
			GPU: comm.GPU{Kind: func(uintptr) cuda.Kind { return kind }},
		})
		id, err := p.UniqueID()
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.InitRankFromID(1, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		region, _ := memory(t, 64)
		for tag, tt := range []struct {
			known cuda.Kind
			named lane.MemoryKind
			words string // of the error; "" for none
		}{
			{cuda.Unknown, lane.HostMemory, ""}, {cuda.Host, lane.HostMemory, ""}, {cuda.Device, lane.GPUMemory, ""}, {cuda.Unknown, lane.GPUMemory, ""},
			{cuda.Device, lane.HostMemory, "is GPU memory: name it as such"}, {cuda.Host, lane.GPUMemory, "is host memory"},
			{cuda.Managed, lane.HostMemory, "managed memory"}, {cuda.Managed, lane.GPUMemory, "managed memory"},
			{cuda.Unknown, 7, "memory of kind 7"},
		} {
			kind = tt.known
			r := region
			r.Kind = tt.named
			err := c.Connect(0, tag, r)
			if tt.words != "" {
				check(t, runs.Name, err, comm.ResultInvalidArgument, tt.words)
			} else if err != nil {
				t.Errorf("%v as %v: %v", tt.known, tt.named, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
