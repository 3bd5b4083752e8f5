package transport_test

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// GPU memory that is registered by a DMA-BUF is registered for the adapters' own functions for it, where each adapter of the
// node has one; other memory never is. The data arrives, and is visible after a flush.
func TestDataDirect(t *testing.T) {
	const fast, slow = "/devices/pci0000:00/0000:00:01.0/0000:03:00.0", "/devices/pci0000:00/0000:00:02.0/0000:04:00.0"
	tests := []struct {
		name   string
		know   [2]string // functions of rdma0 and of rdma1, on the receiver's machine
		change func(*transport.Options)
		path   string
		used   int // registrations for these functions, on each adapter
	}{
		{"both adapters have one", [2]string{fast, slow}, nil, "/sys" + fast, 1},
		{"another sysfs", [2]string{fast, slow}, func(o *transport.Options) { o.Sysfs = "/host/sys" }, "/host/sys" + fast, 1},
		{"one adapter has one", [2]string{fast, ""}, nil, "", 0},
		{"none has", [2]string{}, nil, "", 0},
		{"the user does without", [2]string{fast, slow}, func(o *transport.Options) { o.NoDataDirect = true }, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			w := transporttest.WorldOf(t)
			for k, path := range tt.know {
				w.Cables[k].Adapters[1].Device.KnowDataDirect(path)
			}
			rdma := func(o *transport.Options) { o.Transport, o.GPUBuffer = transport.TransportRDMA, w.Fabric.GPUNumber }
			change := []func(*transport.Options){rdma}
			if tt.change != nil {
				change = append(change, tt.change)
			}
			a := transporttest.New(t, rdma)
			b := transporttest.New(t, change...)
			if got := b.Device().DataDirect; got != tt.path {
				t.Errorf("GPU memory is reached by %q, want %q", got, tt.path)
			}
			if got := a.Device().DataDirect; got != "" {
				t.Errorf("the sender's is reached by %q", got)
			}
			s, r := transporttest.Connect(t, a, b)
			const n = 1 << 18
			gpu, err := w.Fabric.NewGPUMemory(2 * n)
			if err != nil {
				t.Fatal(err)
			}
			host, hb := transporttest.Memory(t, n)
			transporttest.Fill(hb, 1)
			used := func(what string, want int) {
				t.Helper()
				for k, c := range w.Cables {
					if got := c.Adapters[1].Device.DataDirectRegions(); got != want {
						t.Errorf("%s: %d registrations for the function of rdma%d, want %d", what, got, k, want)
					}
				}
			}
			region := transporttest.Register(t, s, host)
			byAddress, err := r.RegMR(lane.GPUMemory, gpu.Addr()+n, n)
			if err != nil {
				t.Fatal(err)
			}
			used("by address", 0)
			fd, err := syscall.Dup(gpu.FD())
			if err != nil {
				t.Fatal(err)
			}
			byDMABuf, err := r.RegDmaBufMR(lane.GPUMemory, gpu.Addr(), n, 0, fd)
			if err := errors.Join(err, syscall.Close(fd)); err != nil {
				t.Fatal(err)
			}
			used("by DMA-BUF", tt.used)
			for i, g := range []*lane.Region{byDMABuf, byAddress} {
				into := conn.Buffer{Addr: gpu.Addr() + uintptr(i*n), Size: n, Region: g}
				transporttest.Both(t, "a message", transporttest.Irecv(t, r, into), transporttest.Isend(t, s, host, 0, n, 0, region))
				f, err := r.Iflush(into)
				if err != nil {
					t.Fatal(err)
				}
				transporttest.Await(t, "a flush", func() bool {
					done, err := f.Test(nil)
					if err != nil {
						t.Fatal(err)
					}
					return done
				})
				if diff := cmp.Diff(fmt.Sprintf("%x", hb[:64]), fmt.Sprintf("%x", gpu.Bytes()[i*n:i*n+64])); diff != "" || string(hb) != string(gpu.Bytes()[i*n:(i+1)*n]) {
					t.Errorf("message %d differs (-want +got):\n%s", i, diff)
				}
			}
			transporttest.CloseBoth(t, s, r)
			used("deregistered", 0)
			if err := gpu.Free(); err != nil {
				t.Error(err)
			}
		}))
	}
}

// An adapter that cannot tell whether it has such a function is used without it, with one warning.
func TestDataDirectUnknown(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		w := transporttest.WorldOf(t)
		for _, c := range w.Cables {
			c.Adapters[0].Device.KnowDataDirect("/devices/dma")
		}
		w.Cables[0].Adapters[0].Device.Refuse("mlx5dv_get_data_direct_sysfs_path", syscall.EIO, 0, 1)
		var log transporttest.Log
		tr := transporttest.New(t, log.Takes(slog.LevelWarn))
		if got := tr.Device().DataDirect; got != "" {
			t.Errorf("GPU memory is reached by %q", got)
		}
		const want = "rdma0:1 (p0): GPU memory is reached by the adapter's usual PCIe function: ibv: mlx5dv_get_data_direct_sysfs_path on rdma0: "
		if n, all := log.Count(want), log.Count("level="); n != 1 || all != 1 {
			t.Errorf("%d of %d warnings say %q", n, all, want)
		}
	})
}
