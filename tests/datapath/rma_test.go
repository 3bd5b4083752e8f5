package datapath

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/ncclnet/rma"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/lane"
)

// The operations of NCCL's RMA interface allocate nothing, from the call to the end of the request, also where more are outstanding
// than a peer takes at a time.
func TestRMAAllocatesNothing(t *testing.T) {
	const size, most = 64 << 10, 1500
	ends := [2]*transport.Transport{transporttest.New(t), transporttest.New(t)}
	var listeners [2]*transport.Listener
	var handles []handshake.Handle
	for i, tr := range ends {
		l, h := transporttest.Listen(t, tr)
		listeners[i], handles = l, append(handles, h)
	}
	var groups [2]*rma.Group
	var windows [2]*rma.Window
	var memory [2]*ibv.Memory
	var both sync.WaitGroup
	for i, tr := range ends {
		memory[i], _ = transporttest.Memory(t, size)
		both.Go(func() {
			var err error
			groups[i], err = rma.Connect(rma.Config{Transport: tr, Listener: listeners[i], Handles: handles, Rank: i, Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				windows[i], err = groups[i].Register(lane.HostMemory, memory[i].Addr(), size)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if t.Failed() {
		return
	}
	c, err := groups[0].NewContext(8)
	if err != nil {
		t.Fatal(err)
	}
	word := (*atomic.Uint64)(unsafe.Pointer(&memory[1].Bytes()[0]))
	signal := &rma.Signal{Word: rma.Bytes{Window: windows[0]}, Do: rma.SignalInc}
	requests := make([]rma.Request, 0, most+1)
	for name, n := range map[string]int{"one operation": 1, "many operations": most} {
		allocs := transporttest.Allocations(5, func() {
			want := word.Load() + uint64(n)
			requests = requests[:0]
			for range n {
				q, err := c.PutSignal(0, rma.Bytes{Window: windows[0], Offset: 8}, 1000, rma.Bytes{Window: windows[0], Offset: 8}, 1, signal)
				if q == 0 || err != nil {
					t.Fatal(q, err)
				}
				requests = append(requests, q)
			}
			q, err := c.Get(0, rma.Bytes{Window: windows[0], Offset: 8}, 1000, rma.Bytes{Window: windows[0], Offset: 8}, 1)
			if q == 0 || err != nil {
				t.Fatal(q, err)
			}
			for _, q := range append(requests, q) {
				for done := false; !done; runtime.Gosched() {
					c.Progress()
					groups[1].Progress()
					if done, err = groups[0].Test(q); err != nil {
						t.Fatal(err)
					}
				}
			}
			for word.Load() != want {
				groups[1].Progress()
			}
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
	for i := range groups {
		if err := groups[i].Close(); err != nil {
			t.Error(err)
		}
		if err := listeners[i].Close(); err != nil {
			t.Error(err)
		}
	}
}
