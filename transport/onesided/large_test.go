package onesided_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// A put that is longer than one of package conn may be is cut into several, and its signal comes behind all of them; so are the
// answers of gets.
func TestLongPutsAreCut(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		word, err := b.window.Word(size - 8)
		if err != nil {
			t.Fatal(err)
		}
		const n = 3<<20 + 77
		for i, cut := range []uint64{1 << 20, 3 << 20, 100_001, n - 1, n, n + 1} {
			a.space.CutAt(cut)
			b.space.CutAt(cut)
			transporttest.Fill(a.b[:n], i+1)
			clear(b.b[128:])
			op, err := a.peer.PutSignal(1, 128, a.window, 0, n, onesided.Signal{Window: 1, Do: onesided.SignalSet, Offset: size - 8, Value: cut})
			if op == 0 || err != nil {
				t.Fatal(op, err)
			}
			await(t, "the signal", a, b, func() bool { return word.Load() == cut })
			if !bytes.Equal(a.b[:n], b.b[128:128+n]) || !zeros(b.b[:128]) || !zeros(b.b[128+n:size-8]) {
				t.Fatalf("cut at %d bytes: the bytes differ when the signal is seen, or others were written", cut)
			}
			done(t, "put and signal", a, b, op, nil)
			clear(b.b)
			op, err = b.peer.Get(1, 0, b.window, 256, n)
			done(t, "get", b, a, op, err)
			if !bytes.Equal(a.b[:n], b.b[256:256+n]) || !zeros(b.b[:256]) || !zeros(b.b[256+n:]) {
				t.Fatalf("cut at %d bytes: the bytes of a get differ, or others were written", cut)
			}
			b.b[size-1] = 0
		}
	})
}

func zeros(b []byte) bool { return !slices.ContainsFunc(b, func(v byte) bool { return v != 0 }) }

// Sizes and offsets need more than 32 bits: a put of 4 GiB and a byte, and a get of 2 GiB and 8 bytes, from and to odd places.
func TestSizesBeyond32Bits(t *testing.T) {
	require.Full(t, "transport/onesided TestNextPut")
	transporttest.Run(t, func(t *testing.T) {
		const whole, at, from = 4<<30 + 1, 5<<30 + 3, 1<<30 + 5 // of the put: bytes, offset in b's window, offset in a's
		const part, back = 2<<30 + 8, 9                         // of the get: bytes, offset in a's window
		marks := []uint64{0, 1}
		for n := uint64(conn.MaxPut); n <= whole; n += conn.MaxPut {
			marks = append(marks, n-1, n)
		}
		places := func(offsets ...uint64) (all []uint64) { // the marks in a window, and the bytes beside what is written
			for _, offset := range offsets {
				for _, n := range append(marks, part-1) {
					all = append(all, offset+n)
				}
				all = append(all, offset-1, offset+part, offset+whole)
			}
			return all
		}
		from1, to := transporttest.New(t), transporttest.New(t)
		s1, r1 := transporttest.ConnectOver(t, from1, to, lane.Verbs)
		s2, r2 := transporttest.ConnectOver(t, to, from1, lane.Verbs)
		a, b := &side{space: onesided.New()}, &side{space: onesided.New()}
		a.b, b.b = sparse(t, from+whole+4096, places(from, back)), sparse(t, at+whole+4096, places(at))
		for _, x := range []struct {
			*side
			s *conn.Sender
			r *conn.Receiver
		}{{a, s1, r2}, {b, s2, r1}} {
			var err error
			if x.window, err = x.space.Register(lane.HostMemory, address(x.b), uintptr(len(x.b))); err != nil {
				t.Fatal(err)
			}
			if x.peer, err = x.space.Connect(x.s, x.r); err != nil {
				t.Fatal(err)
			}
		}
		type span struct{ addr, n uint64 }
		var landed []span
		transporttest.WorldOf(t).Fabric.OnLanding(func(_ string, addr, n uint64) { landed = append(landed, span{addr, n}) })
		tile := func(what string, base uintptr, size uint64) { // the writes, but for those elsewhere, lie side by side
			t.Helper()
			landed = slices.DeleteFunc(landed, func(s span) bool { return s.addr < uint64(base) || s.addr >= uint64(base)+size })
			slices.SortFunc(landed, func(a, b span) int { return cmp.Compare(a.addr, b.addr) })
			next := uint64(base)
			for _, s := range landed {
				if s.addr != next {
					t.Fatalf("%s: %d bytes are written at offset %d, want the offset %d", what, s.n, s.addr-uint64(base), next-uint64(base))
				}
				next += s.n
			}
			if next != uint64(base)+size {
				t.Fatalf("%s: %d bytes were written, want %d", what, next-uint64(base), size)
			}
			landed = nil
		}
		await(t, "the windows", a, b, func() bool {
			_, here := a.peer.Window(1)
			_, there := b.peer.Window(1)
			return here && there
		})
		ended := func(op onesided.Op, err error, p *onesided.Peer) {
			t.Helper()
			for ok := false; !ok; transporttest.WorldOf(t).Sleep(50 * time.Microsecond) {
				if err == nil {
					a.space.Progress()
					b.space.Progress()
					ok, err = p.Done(op)
				}
				if op == 0 || err != nil {
					t.Fatal(op, err)
				}
			}
		}
		for i, n := range marks {
			a.b[from+n] = byte(i + 1)
		}
		op, err := a.peer.Put(1, at, a.window, from, whole)
		ended(op, err, a.peer)
		tile("put", address(b.b)+at, whole)
		for i, n := range marks {
			if b.b[at+n] != byte(i+1) {
				t.Errorf("byte %d of the put is %d, want %d", n, b.b[at+n], i+1)
			}
		}
		if b.b[at-1] != 0 || b.b[at+whole] != 0 {
			t.Error("bytes beside the put were written")
		}
		b.b[at+part-1] = 99
		op, err = a.peer.Get(1, at, a.window, back, part)
		ended(op, err, a.peer)
		tile("get", address(a.b)+back, part)
		for i, n := range marks {
			if n < part-1 && a.b[back+n] != byte(i+1) {
				t.Errorf("byte %d of the get is %d, want %d", n, a.b[back+n], i+1)
			}
		}
		if a.b[back+part-1] != 99 || a.b[back-1] != 0 || a.b[back+part] != 0 {
			t.Error("the last byte of the get is wrong, or bytes beside it were written")
		}
		for _, op := range []func() (onesided.Op, error){
			func() (onesided.Op, error) { return a.peer.Put(1, at+4097, a.window, from, whole) },
			func() (onesided.Op, error) { return a.peer.Put(1, 1<<63, a.window, 0, 1<<63) },
			func() (onesided.Op, error) { return a.peer.Get(1, 0, a.window, 8, ^uint64(0)) },
		} {
			if op, err := op(); op != 0 || err == nil {
				t.Errorf("an operation beyond the end of a window: %d, %v", op, err)
			}
		}
		for _, x := range []*side{a, b} {
			if err := x.peer.Close(); err != nil {
				t.Error(err)
			}
			if err := x.space.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// sparse returns memory of which little costs memory: the pages around some places are memory of their own, and all others are the
// same few over and over, so that what is written to them is lost.
func sparse(t *testing.T, n uint64, places []uint64) []byte {
	t.Helper()
	const page, sink = 4096, 16 << 20
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	must(err)
	t.Cleanup(func() { must(unix.MunmapPtr(base, uintptr(n))) })
	fd, err := unix.MemfdCreate("sink", unix.MFD_CLOEXEC)
	must(err)
	defer unix.Close(fd)
	must(unix.Ftruncate(fd, sink))
	fixed := func(fd int, at, n uint64, flags int) {
		_, err := unix.MmapPtr(fd, 0, unsafe.Add(base, at), uintptr(n), unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_FIXED)
		must(err)
	}
	for at := uint64(0); at < n; at += sink {
		fixed(fd, at, min(sink, n-at), unix.MAP_SHARED)
	}
	for _, p := range places {
		if p < n {
			fixed(-1, p/page*page, page, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		}
	}
	return unsafe.Slice((*byte)(base), n)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
