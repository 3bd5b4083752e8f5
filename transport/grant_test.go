package transport

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
		{"capacity", unsafe.Offsetof(grant{}.capacity), 4, [2]uint32{small, big}},
		{"entries", unsafe.Offsetof(grant{}.n), 1, [2]uint32{1, maxSubs}},
		{"number", unsafe.Offsetof(grant{}.sub), 1, [2]uint32{0, 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			a, b := newTransport(t), newTransport(t)
			s, r := connect(t, a, b)
			sm, _ := memory(t, big)
			rm, _ := memory(t, big)
			sg, rg := register(t, s, sm), register(t, r, rm)

			var at atomic.Uintptr // the field of the grant that is waited for
			var wg sync.WaitGroup
			stop := make(chan struct{})
			wg.Go(func() { flap(t, &at, tt.bytes, tt.flip, stop) })
			for n := range 300 {
				rq := irecv(t, r, Buffer{rm.Addr(), big, 1, rg})
				at.Store(ibv.AddrOf(entry(s)) + tt.field)
				seen := *entry(s)
				await(t, "a change", func() bool { return *entry(s) != seen })
				var sq *Request
				var err error
				for sq == nil && err == nil {
					sq, err = s.Isend(sm.Addr(), size, 1, sg)
				}
				if err != nil {
					if !errors.Is(err, ErrPeer) {
						t.Errorf("isend %d: %v, want ErrPeer", n, err)
					}
					break
				}
				done(t, "send", sq)
				done(t, "receive", rq)
				if got := rq.Size(0); got > size || sq.Size(0) > size {
					t.Fatalf("send %d of %d bytes: %d sent, %d received", n, size, sq.Size(0), got)
				}
			}
			close(stop)
			wg.Wait()
			_, _ = s.Close(), r.Close()
		})
	}
}

// entry is the first entry of the grant that a sender waits for.
func entry(s *SendConn) *grant { return &s.wire.slot(s.head)[0] }

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

// The last lane breaks while grants are read from it, which fill what is read at
// once to its last byte: the send has an error, although its grant is there.
func TestGrantsThenEnd(t *testing.T) {
	leaks(t)
	s, r := tcpPair(t, 1)
	for _, c := range []*conn{s.conn, r.conn} { // one lane, however many interfaces this machine has
		for _, k := range c.sockets[1:] {
			k.up = false
		}
	}
	m, _ := memory(t, 4096)
	sg, rg := register(t, s, m), register(t, r, m)
	b := Buffer{m.Addr(), 64, 1, rg}
	input, one := len(s.sockets[0].mem.in), frameHeader+grantBuffer+2*s.sockets[0].opener.size()
	left := input
	for ; left%one != 0; left -= one + grantBuffer {
		irecv(t, r, b, b)
	}
	for range left / one {
		irecv(t, r, b)
	}
	if err := unix.Shutdown(r.sockets[0].fd, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	await(t, "the grants and the end", func() bool {
		n, err := unix.IoctlGetInt(s.sockets[0].fd, unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		info, err := unix.GetsockoptTCPInfo(s.sockets[0].fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		const closeWait = 8 // of the kernel's TCP states
		return err == nil && n >= input && info.State == closeWait
	})
	if q, err := s.Isend(m.Addr()+2048, 64, 1, sg); q != nil || !errors.Is(err, ErrPeer) {
		t.Errorf("isend on a connection without a lane: %v, %v, want ErrPeer", q, err)
	}
	closeBoth(t, s, r)
}
