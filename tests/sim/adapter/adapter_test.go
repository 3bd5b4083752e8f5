package adapter_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
)

const (
	write    = ibv.IBV_WR_RDMA_WRITE
	writeImm = ibv.IBV_WR_RDMA_WRITE_WITH_IMM
	read     = ibv.IBV_WR_RDMA_READ
	success  = ibv.IBV_WC_SUCCESS
)

// Each case is a pair of ends on nodes a and b, on a link of a gigabyte a second.
func TestPairs(t *testing.T) {
	tests := []struct {
		name string
		do   func(w *world, a, b *end, l *adapter.Link)
	}{
		{"a message takes as long as the link's rate says", func(w *world, a, b *end, _ *adapter.Link) {
			begun := w.bus.Now()
			w.must(a.post(1, write, 0, 1_000_000, 0))
			a.want(1, success)
			took := w.bus.Now() - begun
			if low := time.Millisecond + 20*time.Microsecond; took < low || took > low*13/10 {
				w.Errorf("a megabyte took %v, want a little over %v", took, low)
			}
		}},
		{"a port that is slowed down", func(w *world, a, b *end, _ *adapter.Link) {
			w.ports[0].Slow(1e7)
			begun := w.bus.Now()
			w.must(a.post(1, write, 0, 100_000, 0))
			a.want(1, success)
			if took := w.bus.Now() - begun; took < 10*time.Millisecond {
				w.Errorf("100 kB at 10 MB/s took %v", took)
			}
		}},
		{"late completions come in order, after the data", func(w *world, a, b *end, _ *adapter.Link) {
			w.devices[0].Late(time.Second)
			pattern(a.buf[:100], 1)
			for i := range 20 {
				w.must(a.post(i, write, 0, 100, 0))
			}
			w.clock.Sleep(time.Millisecond)
			if !bytes.Equal(a.buf[:100], b.buf[:100]) {
				w.Error("the data has not come")
			}
			for i := range 20 {
				a.want(i, success)
			}
			if w.bus.Now() < 10*time.Millisecond {
				w.Errorf("nothing was late: it is %v", w.bus.Now())
			}
		}},
		{"acknowledgements lost one way", func(w *world, a, b *end, _ *adapter.Link) {
			w.ports[1].Lose(adapter.Loss{Acks: 1})
			pattern(a.buf[:5000], 2)
			b.postRecv(1)
			w.must(a.post(1, writeImm, 0, 5000, 0))
			a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
			b.want(1, success)
			if !bytes.Equal(a.buf[:5000], b.buf[:5000]) {
				w.Error("the data has not come")
			}
			w.must(b.post(2, write, 0, 5000, 0)) // b sends; but a's queue pair is in error
			b.want(2, ibv.IBV_WC_RETRY_EXC_ERR)
			if n := w.fabric.Counts()["repeated after it was done"]; n != 7 {
				w.Errorf("%d repeats, want 7", n)
			}
		}},
		{"what was lost is sent again as it is then", func(w *world, a, b *end, _ *adapter.Link) {
			pattern(a.buf[:100], 1)
			w.ports[0].Lose(adapter.Loss{Data: 1})
			w.must(a.post(1, write, 0, 100, 0))
			w.clock.Sleep(time.Millisecond)
			pattern(a.buf[:100], 2) // a mistake of the program
			w.ports[0].Lose(adapter.Loss{})
			a.want(1, success)
			if !bytes.Equal(a.buf[:100], b.buf[:100]) {
				w.Error("the old bytes were sent")
			}
		}},
		{"heavy loss both ways", func(w *world, a, b *end, _ *adapter.Link) {
			for _, p := range w.ports {
				p.Lose(adapter.Loss{Data: 0.05, Acks: 0.05})
			}
			for i := range 30 {
				pattern(a.buf[:60_000], i)
				pattern(b.buf[200_000:260_000], i+100)
				b.postRecv(i)
				w.must(a.post(3*i, writeImm, 0, 60_000, 0), a.post(3*i+1, read, 400_000, 60_000, 200_000), a.post(3*i+2, write, 0, 10, 900_000))
				for n := range 3 {
					a.want(3*i+n, success)
				}
				b.want(i, success)
				if !bytes.Equal(a.buf[:60_000], b.buf[:60_000]) || !bytes.Equal(a.buf[400_000:460_000], b.buf[200_000:260_000]) {
					w.Fatalf("round %d: bytes differ", i)
				}
			}
			counts := w.fabric.Counts()
			for _, what := range []string{"lost request", "lost acknowledgement", "lost read data", "time-out", "refused: out of order", "repeated after it was done"} {
				if counts[what] == 0 {
					w.Errorf("%q never happened: %v", what, counts)
				}
			}
		}},
		{"each byte that lands is told of", func(w *world, a, b *end, _ *adapter.Link) {
			landed := map[string]uint64{}
			w.fabric.OnLanding(func(node string, addr, n uint64) {
				base := uint64(ibv.AddrOf(&b.buf[0]))
				if addr < base+5000 || addr+n > base+45_000 {
					w.Errorf("%d bytes at %d", n, int64(addr-base))
				}
				landed[node] += n
			})
			w.must(a.post(1, write, 0, 40_000, 5000), a.post(2, read, 0, 1000, 0))
			a.want(1, success)
			a.want(2, success)
			if diff := cmp.Diff(map[string]uint64{"b": 40_000}, landed); diff != "" {
				w.Errorf("(-want +got):\n%s", diff)
			}
		}},
		{"a queue pair in error sends no more of what is read", func(w *world, a, b *end, _ *adapter.Link) {
			w.must(a.post(1, read, 0, 1_000_000, 0))
			w.clock.Sleep(200 * time.Microsecond)
			w.must(b.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_ERR}, ibv.IBV_QP_STATE))
			a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		}},
		{"a device that fails", func(w *world, a, b *end, _ *adapter.Link) {
			a.postRecv(1)
			w.devices[0].Fatal()
			a.want(1, ibv.IBV_WC_WR_FLUSH_ERR)
			if got := a.names(); !slices.Contains(got, "IBV_EVENT_DEVICE_FATAL") {
				w.Errorf("events %v", got)
			}
			if _, err := a.pd.RegMR(ibv.AddrOf(&a.buf[0]), 4096, 0); !errors.Is(err, syscall.EIO) {
				w.Errorf("reg_mr: %v, want EIO", err)
			}
			w.must(b.post(1, write, 0, 8, 0))
			b.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		}},
		{"addresses that change", func(w *world, a, b *end, _ *adapter.Link) {
			w.ports[1].SetGIDs(gids(0, 99))
			if got := b.names(); !slices.Contains(got, "IBV_EVENT_GID_CHANGE") {
				w.Errorf("events %v", got)
			}
		}},
		{"calls that are refused", func(w *world, a, b *end, _ *adapter.Link) {
			w.devices[0].Refuse("reg_mr", syscall.ENOMEM, 1, 2)
			w.devices[0].Refuse("post_send", syscall.ENOMEM, 0, 1)
			var got []bool
			for range 4 {
				mr, err := a.pd.RegMR(ibv.AddrOf(&a.buf[0]), 4096, 0)
				if got = append(got, err == nil); err == nil {
					w.must(mr.Close())
				}
			}
			if diff := cmp.Diff([]bool{true, false, false, true}, got); diff != "" {
				w.Errorf("registrations (-want +got):\n%s", diff)
			}
			if err := a.post(1, write, 0, 8, 0); !errors.Is(err, syscall.ENOMEM) {
				w.Errorf("post_send: %v, want ENOMEM", err)
			}
			w.must(a.post(2, write, 0, 8, 0))
			a.want(2, success)
		}},
		{"a verb that takes its time", func(w *world, a, b *end, _ *adapter.Link) {
			w.devices[0].Slow("reg_mr", time.Second)
			begun := w.bus.Now()
			mr, err := a.pd.RegMR(ibv.AddrOf(&a.buf[0]), 4096, 0)
			w.must(err, mr.Close())
			if took := w.bus.Now() - begun; took < time.Second {
				w.Errorf("it took %v", took)
			}
		}},
		{"DMA-BUF", func(w *world, a, b *end, _ *adapter.Link) {
			gpu, err := w.fabric.NewGPUMemory(8192)
			w.must(err)
			const iova = 0x7f0000001000
			mr, err := b.pd.RegDmaBufMR(4096, 4096, iova, gpu.FD(), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE)
			w.must(err)
			pattern(a.buf[:100], 3)
			w.must(a.post(1, write, 0, 0, 0))
			a.want(1, success)
			a.sge[2] = ibv.SGE{Addr: uint64(ibv.AddrOf(&a.buf[0])), Length: 100, LKey: a.mr.LKey()}
			a.wr[2] = ibv.SendWR{WRID: 2, SGList: ibv.AddrOf(&a.sge[2]), NumSGE: 1, SendFlags: ibv.IBV_SEND_SIGNALED, RemoteAddr: iova + 8, RKey: mr.RKey()}
			_, err = a.qp.PostSend(&a.wr[2])
			w.must(err)
			a.want(2, success)
			if bytes.Equal(a.buf[:100], gpu.Bytes()[4104:4204]) {
				w.Error("the GPU sees the bytes at once")
			}
			time.Sleep(time.Millisecond)
			if !bytes.Equal(a.buf[:100], gpu.Bytes()[4104:4204]) {
				w.Error("bytes differ")
			}
			for _, bad := range []struct {
				name                 string
				offset, length, iova uint64
				fd                   int
				want                 syscall.Errno
			}{
				{"more than there is", 4096, 4097, iova, gpu.FD(), syscall.EINVAL},
				{"another place in a page", 0, 4096, iova + 8, gpu.FD(), syscall.EINVAL},
				{"no descriptor", 0, 4096, iova, -1, syscall.EBADF},
			} {
				if _, err := b.pd.RegDmaBufMR(bad.offset, bad.length, bad.iova, bad.fd, 0); !errors.Is(err, bad.want) {
					w.Errorf("%s: %v, want %v", bad.name, err, bad.want)
				}
			}
			w.must(mr.Close(), gpu.Free())
		}},
		{"GPU memory by its address", func(w *world, a, b *end, _ *adapter.Link) {
			gpu, err := w.fabric.NewGPUMemory(8192)
			w.must(err)
			mr, err := b.pd.RegMR(gpu.Addr()+1, 8000, ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE|ibv.IBV_ACCESS_REMOTE_READ)
			w.must(err)
			pattern(a.buf[:100], 3)
			send := func(id int, op uint32, from int) {
				a.sge[id] = ibv.SGE{Addr: uint64(ibv.AddrOf(&a.buf[from])), Length: 100, LKey: a.mr.LKey()}
				a.wr[id] = ibv.SendWR{WRID: uint64(id), SGList: ibv.AddrOf(&a.sge[id]), NumSGE: 1, Opcode: op, SendFlags: ibv.IBV_SEND_SIGNALED, RemoteAddr: uint64(gpu.Addr()) + 9, RKey: mr.RKey()}
				_, err = a.qp.PostSend(&a.wr[id])
				w.must(err)
				a.want(id, success)
			}
			send(1, write, 0)
			send(2, read, 200) // pushes what was written
			if !bytes.Equal(a.buf[:100], gpu.Bytes()[9:109]) || !bytes.Equal(a.buf[:100], a.buf[200:300]) {
				w.Error("bytes differ")
			}
			w.must(mr.Close())
			gpu.NoPeer()
			if _, err := b.pd.RegMR(gpu.Addr(), 8192, 0); !errors.Is(err, syscall.EFAULT) {
				w.Errorf("without peermem: %v", err)
			}
			w.must(gpu.Free())
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			try(t, 2, func(w *world, l *adapter.Link) {
				a, b := w.end(0), w.end(1)
				w.connect(a, b)
				tt.do(w, a, b, l)
				a.close()
				b.close()
			})
		})
	}
}

// A process that dies leaves its peers without an answer, and another one of the node does not hear of it.
func TestKill(t *testing.T) {
	try(t, 2, func(w *world, _ *adapter.Link) {
		a, b := w.end(0), w.end(1)
		w.connect(a, b)
		w.must(a.post(1, write, 0, 500_000, 0))
		w.clock.Sleep(100 * time.Microsecond)
		w.processes[1].Kill()
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		if _, err := b.ctx.AllocPD(); !errors.Is(err, syscall.EIO) {
			w.Errorf("a verb of a dead process: %v, want EIO", err)
		}
		if n, err := b.cq.Poll(b.wc); err == nil {
			w.Errorf("a dead process polled %d completions", n)
		}
		b.close()
		again := w.fabric.Process("b", "another")
		devices, err := ibv.Use(again).Devices()
		w.must(err)
		c, err := devices[0].Open()
		w.must(err)
		w.must(c.Close())
		a.close()
	})
}

// Cables in the wrong sockets: the neighbour is not there. Put right, it is.
func TestWrongCabling(t *testing.T) {
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b, 4)
		wrong := w.fabric.Connect(slow, w.ports[0], w.ports[2])
		w.fabric.Connect(slow, w.ports[1], w.ports[3])
		x, y := w.end(0), w.end(1)
		x.peer, y.peer = y, x
		begun := b.Now()
		if err := x.connect(); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("%v, want ETIMEDOUT", err)
		}
		if took := b.Now() - begun; took < adapter.Resolve {
			t.Errorf("the neighbour was looked for during %v, want %v", took, adapter.Resolve)
		}
		wrong.Disconnect()
		if err := y.connect(); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("%v, want ETIMEDOUT", err)
		}
		x.close()
		y.close()
	})
}

// A node looks for its neighbour while the cable is plugged in: it finds it.
func TestResolvedMeanwhile(t *testing.T) {
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b, 2)
		x, y := w.end(0), w.end(1)
		x.peer, y.peer = y, x
		var wg sync.WaitGroup
		var err1, err2 error
		wg.Go(func() { err1 = x.connect() })
		wg.Go(func() { err2 = y.connect() })
		w.clock.Sleep(adapter.Resolve / 2)
		w.fabric.Connect(slow, w.ports...)
		wg.Wait()
		w.must(err1, err2)
		x.close()
		y.close()
	})
}

// InfiniBand ports go by LID; packets to one that nobody has are lost.
func TestLIDs(t *testing.T) {
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b, 0)
		for i := range 2 {
			node := string(rune('a' + i))
			d := w.fabric.AddDevice(node, "mlx5_0", adapter.Usual)
			w.ports = append(w.ports, d.AddPort(adapter.PortConfig{LID: uint16(i + 5), GIDs: gids(9, byte(i))}))
			w.processes = append(w.processes, w.fabric.Process(node, "p"))
		}
		w.fabric.Connect(slow, w.ports...)
		x, y := w.end(0), w.end(1)
		if attr, err := x.ctx.QueryPort(1); err != nil || attr.LID != 5 || attr.LinkLayer != ibv.IBV_LINK_LAYER_INFINIBAND {
			t.Errorf("port %+v, %v", attr, err)
		}
		x.path, y.path = &ibv.AHAttr{DLID: 6, PortNum: 1}, &ibv.AHAttr{DLID: 5, PortNum: 1}
		w.connect(x, y)
		w.must(x.post(1, write, 0, 100, 0))
		x.want(1, success)
		z := w.end(0)
		z.path, z.peer = &ibv.AHAttr{DLID: 77, PortNum: 1}, y
		w.must(z.connect(), z.post(1, write, 0, 100, 0))
		z.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		x.close()
		y.close()
		z.close()
	})
}

// Two queue pairs share a port's rate.
func TestShare(t *testing.T) {
	try(t, 3, func(w *world, _ *adapter.Link) {
		a1, b := w.end(0), w.end(1)
		a2, c := w.end(0), w.end(2)
		w.connect(a1, b)
		w.connect(a2, c)
		begun := w.bus.Now()
		w.must(a1.post(1, write, 0, 1_000_000, 0), a2.post(1, write, 0, 1_000_000, 0))
		a1.want(1, success)
		first := w.bus.Now() - begun
		a2.want(1, success)
		if both := w.bus.Now() - begun; both < 2*time.Millisecond || first < both*9/10 {
			w.Errorf("two megabytes at 1 GB/s took %v, the first of them %v", both, first)
		}
		for _, e := range []*end{a1, a2, b, c} {
			e.close()
		}
	})
}

// A device that was told nothing knows nothing of ECE; one whose firmware lacks it still tells its vendor.
func TestWithoutECE(t *testing.T) {
	try(t, 2, func(w *world, _ *adapter.Link) {
		w.devices[1].KnowECE(0x15b3, 0)
		a, b := w.end(0), w.end(1)
		if _, err := a.qp.QueryECE(); !errors.Is(err, ibv.ErrNotSupported) {
			t.Errorf("query: %v", err)
		}
		got, err := b.qp.QueryECE()
		if diff := cmp.Diff(ibv.ECE{VendorID: 0x15b3}, got); err != nil || diff != "" {
			t.Errorf("query: %v (-want +got):\n%s", err, diff)
		}
		for _, e := range []*end{a, b} {
			if err := e.qp.SetECE(&ibv.ECE{VendorID: 0x15b3, Options: 1}); !errors.Is(err, ibv.ErrNotSupported) {
				t.Errorf("set: %v", err)
			}
		}
		w.connect(a, b)
		w.must(a.post(1, write, 0, 100, 0))
		a.want(1, success)
		if n, ok := w.fabric.ECEOptions(a.qp.Num()); n != 0 || !ok {
			t.Errorf("options in effect: %#x, %v", n, ok)
		}
		a.close()
		b.close()
	})
}
