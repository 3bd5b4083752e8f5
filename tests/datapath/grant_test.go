package datapath

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A receiver that changes its grants while they are read gets what was sent or an
// error, never a byte more.
func TestGrantChanges(t *testing.T) {
	const small, size, big = 64, 256, 1 << 19
	tests := []struct {
		name  string
		field uintptr   // offset in the entry
		bytes int       // of it
		flip  [2]uint32 // between which values
	}{
		{"capacity", unsafe.Offsetof(lane.Grant{}.Capacity), 4, [2]uint32{small, big}},
		{"entries", unsafe.Offsetof(lane.Grant{}.N), 1, [2]uint32{1, lane.MaxSubs}},
		{"number", unsafe.Offsetof(lane.Grant{}.Sub), 1, [2]uint32{0, 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transporttest.Leaks(t)
			a, b := transporttest.New(t), transporttest.New(t)
			s, r := transporttest.Connect(t, a, b)
			sm, _ := transporttest.Memory(t, big)
			rm, _ := transporttest.Memory(t, big)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)

			var at atomic.Uintptr // the field of the grant that is waited for
			var wg sync.WaitGroup
			stop := make(chan struct{})
			wg.Go(func() { flap(t, &at, tt.bytes, tt.flip, stop) })
			for n := range 300 {
				rq := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, big, 1, rg))
				entry := &s.Ring.Slot(uint64(n) + 1)[0]
				at.Store(ibv.AddrOf(entry) + tt.field)
				seen := *entry
				transporttest.Await(t, "a change", func() bool { return *entry != seen })
				var sq *conn.Request
				var err error
				for sq == nil && err == nil {
					sq, err = s.Isend(sm.Addr(), size, 1, sg)
				}
				if err != nil {
					if !errors.Is(err, fault.ErrPeer) {
						t.Errorf("isend %d: %v, want ErrPeer", n, err)
					}
					break
				}
				sent, got := transporttest.Done(t, "send", sq)[0], transporttest.Done(t, "receive", rq)[0]
				if got > size || sent > size {
					t.Fatalf("send %d of %d bytes: %d sent, %d received", n, size, sent, got)
				}
			}
			close(stop)
			wg.Wait()
			_, _ = s.Close(), r.Close()
		})
	}
}

// flap writes two values by turns to wherever at points, as a device would: not by
// instructions of this program.
func flap(t *testing.T, at *atomic.Uintptr, n int, values [2]uint32, stop <-chan struct{}) {
	var words [2][4]byte
	for i, v := range values {
		binary.LittleEndian.PutUint32(words[i][:], v)
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		addr := at.Load()
		if addr == 0 {
			continue
		}
		var from []unix.Iovec
		var to []unix.RemoteIovec
		for i := range 64 {
			from = append(from, unix.Iovec{Base: &words[i%2][0], Len: uint64(n)})
			to = append(to, unix.RemoteIovec{Base: addr, Len: n})
		}
		if _, err := unix.ProcessVMWritev(os.Getpid(), from, to, 0); err != nil {
			t.Error(err)
			return
		}
	}
}
