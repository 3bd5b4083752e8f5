package onesided_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// Each mistake is one error that says what is wrong; nothing is written, and the peer goes on.
func TestBadInput(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		inc := func(window uint32, offset uint64) onesided.Signal {
			return onesided.Signal{Window: window, Do: onesided.SignalInc, Offset: offset}
		}
		for _, tt := range []struct {
			name string
			call func() (onesided.Op, error)
			want string
		}{
			{"put beyond the peer's window", func() (onesided.Op, error) { return a.peer.Put(1, size-7, a.window, 0, 8) }, "8 bytes at offset 4194297 of window 1, which has 4194304 bytes"},
			{"put at an offset that wraps", func() (onesided.Op, error) { return a.peer.Put(1, ^uint64(0), a.window, 0, 8) }, "of window 1, which has 4194304 bytes"},
			{"put from beyond the own window", func() (onesided.Op, error) { return a.peer.Put(1, 0, a.window, size, 1) }, "1 bytes at offset 4194304 of window 1"},
			{"put into a window that the peer never had", func() (onesided.Op, error) { return a.peer.Put(2, 0, a.window, 0, 8) }, "has no window 2"},
			{"signal into no window", func() (onesided.Op, error) { return a.peer.Signal(inc(0, 0)) }, "has no window 0"},
			{"signal word that is not aligned", func() (onesided.Op, error) { return a.peer.Signal(inc(1, 4)) }, "a signal word at offset 4 of window 1"},
			{"signal word out of range", func() (onesided.Op, error) { return a.peer.Signal(inc(1, size)) }, "a signal word at offset 4194304 of window 1"},
			{"signal that does nothing", func() (onesided.Op, error) { return a.peer.Signal(onesided.Signal{Window: 1}) }, "signal operation 0"},
			{"a good put with a bad signal", func() (onesided.Op, error) { return a.peer.PutSignal(1, 0, a.window, 0, 8, inc(1, 7)) }, "a signal word at offset 7"},
			{"get from beyond the peer's window", func() (onesided.Op, error) { return a.peer.Get(1, size, a.window, 0, 1) }, "1 bytes at offset 4194304 of window 1"},
			{"get to beyond the own window", func() (onesided.Op, error) { return a.peer.Get(1, 0, a.window, size-1, 2) }, "2 bytes at offset 4194303 of window 1"},
		} {
			a.b[0] = 1
			op, err := tt.call()
			if op != 0 || !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: operation %d, error %v; want a usage error about %q", tt.name, op, err, tt.want)
			}
		}
		if ok, err := a.peer.Done(1); ok || err == nil {
			t.Errorf("an operation that has not begun: %v, %v", ok, err)
		}
		op, err := a.peer.PutSignal(1, 8, a.window, 0, 8, inc(1, 0))
		done(t, "a good one after all", a, b, op, err)
		word, err := b.window.Word(0)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "its signal", a, b, func() bool { return word.Load() == 1 })
		for i, v := range b.b[16:] {
			if v != 0 {
				t.Fatalf("byte %d was written", 16+i)
			}
		}
	})
}

// A window ends while puts into it are under way: each put is done, or says that the window is gone. Nothing is written
// afterwards, and the peers go on.
func TestWindowEnds(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		const n = 512 << 10
		var ops []onesided.Op
		put := func() (gone bool) {
			op, err := a.peer.Put(1, uint64(len(ops)%8*n), a.window, 0, n)
			switch {
			case errors.Is(err, conn.ErrWindowGone):
				return true
			case err != nil:
				t.Fatal(err)
			case op != 0:
				ops = append(ops, op)
			}
			return false
		}
		transporttest.Fill(a.b, 3)
		for range 8 {
			put()
		}
		ended := false
		await(t, "the end of the window", a, b, func() bool {
			put()
			var err error
			if ended, err = b.window.Close(); err != nil {
				t.Fatal(err)
			}
			return ended
		})
		clear(b.b)
		await(t, "the news of it", a, b, put)
		late, gone := 0, 0
		for _, op := range ops {
			await(t, "a put", a, b, func() bool {
				ok, err := a.peer.Done(op)
				if ok && errors.Is(err, conn.ErrWindowGone) {
					gone++
				} else if err != nil {
					t.Fatal(err)
				}
				return ok
			})
		}
		for _, v := range b.b {
			if v != 0 {
				late++
			}
		}
		if late > 0 {
			t.Errorf("%d bytes were written after the end of the window", late)
		}
		t.Logf("%d puts, of which %d came too late", len(ops), gone)
		if !a.peer.Gone(1) || b.peer.Gone(1) || a.peer.Gone(2) || !b.space.Self().Gone(1) || a.space.Self().Gone(1) {
			t.Error("another window than that of the one side is gone, or that one is not")
		}
		if _, err := a.window.Word(0); err != nil {
			t.Error(err)
		}
		op, err := b.peer.PutSignal(1, 0, b.window, 0, 8, onesided.Signal{Window: 1, Do: onesided.SignalInc})
		if op != 0 || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a put from a window that has ended: %d, %v", op, err)
		}
		op, err = b.peer.Signal(onesided.Signal{Window: 1, Do: onesided.SignalSet, Offset: 8, Value: 5})
		done(t, "a signal the other way", b, a, op, err)
	})
}

// A window that is abandoned is not written afterwards; the peer's error says why.
func TestAbandon(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		transporttest.Fill(a.b, 3)
		if op, err := a.peer.Put(1, 0, a.window, 0, size); op == 0 || err != nil {
			t.Fatal(op, err)
		}
		if err := b.window.Abandon(); err != nil {
			t.Fatal(err)
		}
		clear(b.b)
		for range 20_000 {
			a.space.Progress()
			b.space.Progress()
			transporttest.WorldOf(t).Sleep(2000)
		}
		for i, v := range b.b {
			if v != 0 {
				t.Fatalf("byte %d was written after the window was abandoned", i)
			}
		}
		if err := a.peer.Err(); err == nil || !strings.Contains(err.Error(), "was deregistered with") {
			t.Errorf("the peer's error is %v, want one that says that memory was deregistered", err)
		}
	})
}

// Operations of a process on itself are done at once.
func TestSelf(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		self := a.space.Self()
		transporttest.Fill(a.b[:1000], 4)
		want := string(a.b[:1000])
		var count atomic.Uint64
		for i, call := range []func() (onesided.Op, error){
			func() (onesided.Op, error) {
				return self.PutSignal(1, 1024, a.window, 0, 1000, onesided.Signal{Window: 1, Do: onesided.SignalAdd, Offset: 4096, Value: 3})
			},
			func() (onesided.Op, error) { return self.Get(1, 1024, a.window, 2048, 1000) },
			self.Flush,
		} {
			op, err := call()
			if op != onesided.Op(i+1) || err != nil {
				t.Fatalf("operation %d: %v", op, err)
			}
			if ok, err := self.Done(op); !ok || err != nil {
				t.Errorf("operation %d: %v, %v", op, ok, err)
			}
			self.Count(op, &count)
		}
		word, err := a.window.Word(4096)
		if err != nil {
			t.Fatal(err)
		}
		if word.Load() != 3 || string(a.b[1024:2024]) != want || string(a.b[2048:3048]) != want || count.Load() != 3 {
			t.Errorf("word %d, counter %d, or other bytes", word.Load(), count.Load())
		}
		if _, err := self.Put(9, 0, a.window, 0, 1); err == nil {
			t.Error("a put into a window that is not there")
		}
		if _, err := self.Signal(onesided.Signal{Window: 1, Do: onesided.SignalInc, Offset: size - 4}); err == nil {
			t.Error("a signal beyond the window")
		}
	})
}

// A flush is done when everything before it is, at once if there is nothing. Counters count operations that are done.
func TestFlushAndCount(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		op, err := a.peer.Flush()
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := a.peer.Done(op); !ok || err != nil {
			t.Errorf("a flush of nothing: %v, %v", ok, err)
		}
		var count atomic.Uint64
		const puts = 20
		for range puts {
			op, err := a.peer.Put(1, 0, a.window, 0, 100_000)
			if op == 0 || err != nil {
				t.Fatal(op, err)
			}
			a.peer.Count(op, &count)
		}
		op, err = a.peer.Flush()
		if ok, _ := a.peer.Done(op); ok {
			t.Error("a flush is done before the puts")
		}
		done(t, "flush", a, b, op, err)
		if count.Load() != puts || a.peer.Outstanding() != 0 {
			t.Errorf("%d puts counted, %d operations outstanding", count.Load(), a.peer.Outstanding())
		}
	})
}

// No more operations begin than may be outstanding; all end.
func TestManyOutstanding(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		word, err := b.window.Word(0)
		if err != nil {
			t.Fatal(err)
		}
		begun := 0
		for {
			op, err := a.peer.PutSignal(1, 64, a.window, 0, 64, onesided.Signal{Window: 1, Do: onesided.SignalInc})
			if err != nil {
				t.Fatal(err)
			}
			if op == 0 {
				break
			}
			begun++
		}
		if begun != onesided.MaxOps {
			t.Errorf("%d operations began, want %d", begun, onesided.MaxOps)
		}
		await(t, "all signals", a, b, func() bool { return word.Load() == uint64(begun) && a.peer.Outstanding() == 0 })
	})
}

// A peer whose process ends is lost: all operations end with an error.
func TestPeerEnds(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		op, err := a.peer.Get(1, 0, a.window, 0, 1000) // that b never answers
		if op == 0 || err != nil {
			t.Fatal(op, err)
		}
		if err := b.space.Close(); err != nil {
			t.Error(err)
		}
		for range 10_000 {
			if a.space.Progress(); a.peer.Err() != nil {
				break
			}
			transporttest.WorldOf(t).Sleep(10_000)
		}
		if ok, err := a.peer.Done(op); !ok || !errors.Is(err, fault.ErrPeer) {
			t.Errorf("the get: %v, %v", ok, err)
		}
		if _, err := a.peer.Signal(onesided.Signal{Window: 1, Do: onesided.SignalInc}); err == nil {
			t.Error("a signal to a peer that is lost")
		}
	})
}

// A registration that fails takes no number, and no peer hears of it.
func TestFailedRegistrationHasNoNumber(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		if w, err := a.space.Register(lane.GPUMemory, a.mem.Addr(), 0); w != nil || !errors.Is(err, fault.ErrUsage) {
			t.Fatalf("a window without bytes: %v, %v", w, err)
		}
		if w, err := a.space.RegisterDMABuf(lane.GPUMemory, a.mem.Addr(), size, 0, -1); w != nil || err == nil {
			t.Fatalf("a window of a descriptor that is not open: %v, %v", w, err)
		}
		second, err := a.space.Register(lane.HostMemory, a.mem.Addr(), 64)
		if err != nil {
			t.Fatal(err)
		}
		if second.ID() != 2 {
			t.Errorf("the next window is number %d", second.ID())
		}
		await(t, "the next window", a, b, func() bool {
			w, ok := b.peer.Window(2)
			return ok && w.Size == 64
		})
	})
}
