package comm_test

import (
	"bytes"
	"encoding/binary"
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

// registerGPU gives two ranks a connection, and registers a buffer in GPU memory with each.
func registerGPU(t *testing.T, size int) (ranks []*rank, buffers [2]*comm.Buffer, mem [2]*adapter.GPUMemory) {
	t.Helper()
	mem = [2]*adapter.GPUMemory{transporttest.GPUMemory(t, size), transporttest.GPUMemory(t, size)} // freed after the ranks have closed
	ranks = start(t, 2, map[string]string{"NCCL_MESH_TRANSPORT": "rdma"})
	connectAll(t, ranks)
	must(t, each(ranks, func(r *rank) (err error) {
		buffers[r.number], err = r.Register(comm.Region{Kind: lane.GPUMemory, Addr: mem[r.number].Addr(), Length: uint64(size)})
		return err
	}))
	return ranks, buffers, mem
}

// Words in GPU memory are signalled by any rank, also by their own. A GPU that polls a word sees all writes before the signal, although
// its process calls nothing.
func TestSignalWordsInGPUMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const size, n, word = 1 << 20, 100_000, 1<<20 - 8
		_, buffers, mem := registerGPU(t, size)
		gpuWord := func() uint64 { return binary.LittleEndian.Uint64(mem[1].Bytes()[word:]) }
		for round := range uint64(10) {
			transporttest.Fill(mem[0].Bytes()[:n], int(round))
			if err := errors.Join(buffers[0].Write(1, 64, buffers[0], 0, n), buffers[0].Signal(1, word, onesided.SignalAdd, 3)); err != nil {
				t.Fatal(err)
			}
			transporttest.Await(t, "the word", func() bool { return gpuWord() > 3*round })
			if !bytes.Equal(mem[0].Bytes()[:n], mem[1].Bytes()[64:64+n]) {
				t.Fatalf("round %d: the GPU does not see the data", round)
			}
			if err := buffers[0].Flush(1, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(
			buffers[0].Signal(1, word, onesided.SignalInc, 0), buffers[1].Signal(1, word, onesided.SignalInc, 0),
			buffers[1].Wait(word, 32, time.Minute), buffers[1].Write(1, 8, buffers[1], 64, 8), buffers[1].Flush(1, time.Minute),
		); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem[1].Bytes()[8:16], mem[1].Bytes()[64:72]) {
			t.Error("a rank's write to its own GPU memory differs")
		}
		if v, err := buffers[1].Load(word); v != 32 || err != nil || gpuWord() != 32 {
			t.Errorf("loaded %d, %v; the GPU sees %d; want 32", v, err, gpuWord())
		}
		if err := errors.Join(buffers[0].Signal(1, 0, onesided.SignalSet, 1<<50), buffers[1].Wait(0, 1<<50, time.Minute)); err != nil {
			t.Error(err)
		}
		_, load := buffers[1].Load(size - 4)
		_, beyond := buffers[1].Load(size)
		for _, tt := range []struct {
			what  string
			err   error
			want  comm.Result
			words []string
		}{
			{"a signal beyond the buffer", buffers[0].Signal(1, size, onesided.SignalInc, 0), comm.ResultInvalidArgument, []string{"8 bytes at offset 1048576 of the buffer of rank 1, which has 1048576 bytes"}},
			{"a word that is not aligned", buffers[0].Signal(1, 4, onesided.SignalInc, 0), comm.ResultInvalidArgument, []string{"offset 4: want a multiple of 8"}},
			{"loading a word that is not aligned", load, comm.ResultInvalidArgument, []string{"load: ", "offset 1048572: want a multiple of 8"}},
			{"loading beyond the buffer", beyond, comm.ResultInvalidArgument, []string{"load: ", "of the local buffer, which has 1048576 bytes"}},
			{"waiting in vain", buffers[1].Wait(8, 1<<63, time.Second), comm.ResultInProgress, []string{"the word at offset 8 has not become 9223372036854775808 within 1s"}},
		} {
			check(t, tt.what, tt.err, tt.want, tt.words...)
		}
	})
}

// A wait for a word in GPU memory ends when the other rank dies, and signals that came before count.
func TestRankDiesInGPUWait(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, buffers, _ := registerGPU(t, 4096)
		waited := make(chan error)
		go func() { waited <- buffers[0].Wait(0, 2, comm.Forever) }()
		if err := errors.Join(buffers[1].Signal(0, 0, onesided.SignalInc, 0), buffers[0].Wait(0, 1, time.Minute)); err != nil {
			t.Fatal(err)
		}
		ranks[1].killed = true
		ranks[1].runs.Kill()
		check(t, "wait", <-waited, comm.ResultRemoteError, "wait: ", "peer gone")
		if err := buffers[0].Wait(0, 1, time.Minute); err != nil {
			t.Errorf("waiting for the signal that came before: %v", err)
		}
		check(t, "a signal to it", buffers[0].Signal(1, 0, onesided.SignalInc, 0), comm.ResultRemoteError, "signal: ")
	})
}

// A rank that closes while another thread waits for a word in GPU memory ends the wait.
func TestCloseInGPUWait(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, buffers, _ := registerGPU(t, 4096)
		waited := make(chan error)
		go func() { waited <- buffers[0].Wait(0, 1, comm.Forever) }()
		transporttest.WorldOf(t).Sleep(time.Second)
		if err := ranks[0].Close(); err != nil {
			t.Error(err)
		}
		check(t, "wait", <-waited, comm.ResultInvalidUsage, "wait: ", "the communicator is clos")
	})
}

// GPU memory is refused where the processor moves the data, and the error says what to do.
func TestBadGPUMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		mem := transporttest.GPUMemory(t, 4096)
		ranks := start(t, 2, map[string]string{"NCCL_MESH_TRANSPORT": "tcp"})
		connectAll(t, ranks)
		for i, err := range each(ranks, func(r *rank) error {
			_, err := r.Register(comm.Region{Kind: lane.GPUMemory, Addr: mem.Addr(), Length: 4096})
			return err
		}) {
			check(t, ranks[i].runs.Name, err, comm.ResultInvalidUsage, "register 4096 bytes of GPU memory at", "the process uses no RDMA port", "use host memory")
		}
	})
}

func TestKindsOfMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		kind := cuda.Unknown
		runs, machine := transporttest.WorldOf(t).Start()
		p := comm.NewProcess(comm.Host{
			Getenv: func(string) string { return "" }, Environ: func() []string { return nil }, Machine: machine,
			GPU: comm.GPU{Kind: func(uintptr) cuda.Kind { return kind }},
		})
		_, c := alone(t, p)
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
