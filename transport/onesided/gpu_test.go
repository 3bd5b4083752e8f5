package onesided_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// gpuSide is one process of a pair with a window in GPU memory.
type gpuSide struct {
	side
	gpu *adapter.GPUMemory
}

func newGPUSide(t *testing.T, tr *transport.Transport, s *conn.Sender, r *conn.Receiver) *gpuSide {
	t.Helper()
	x := &gpuSide{side: side{space: onesided.New()}}
	x.space.UseCopier(tr.Copier())
	x.gpu = transporttest.GPUMemory(t, size)
	var err error
	x.b = x.gpu.Bytes()
	if x.window, err = x.space.RegisterDMABuf(lane.GPUMemory, x.gpu.Addr(), size, 0, x.gpu.FD()); err != nil {
		t.Fatal(err)
	}
	if x.peer, err = x.space.Connect(s, r); err != nil {
		t.Fatal(err)
	}
	return x
}

// word returns a word as the GPU sees it.
func (x *gpuSide) word(at int) uint64 { return binary.LittleEndian.Uint64(x.b[at:]) }

// overGPU runs a test on two processes with a window in GPU memory each.
func overGPU(t *testing.T, f func(t *testing.T, a, b *gpuSide)) {
	circuits := func(t testing.TB, from, to *transport.Transport) (*conn.Sender, *conn.Receiver) {
		return transporttest.ConnectOver(t.(*testing.T), from, to, lane.Circuit, lane.Circuit)
	}
	for _, tt := range []struct {
		name    string
		connect func(t testing.TB, from, to *transport.Transport) (*conn.Sender, *conn.Receiver)
	}{
		{"queue pairs of two adapters", transporttest.Connect},
		{"circuits", circuits},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			from, to := transporttest.New(t), transporttest.New(t)
			s1, r1 := tt.connect(t, from, to)
			s2, r2 := tt.connect(t, to, from)
			a, b := newGPUSide(t, from, s1, r2), newGPUSide(t, to, s2, r1)
			await(t, "the windows", &a.side, &b.side, func() bool {
				_, here := a.peer.Window(1)
				_, there := b.peer.Window(1)
				return here && there
			})
			f(t, a, b)
			for _, s := range []*gpuSide{a, b} {
				if err := errors.Join(s.peer.Close(), s.space.Close()); err != nil {
					t.Error(err)
				}
			}
		}))
	}
}

// Words of signals lie in GPU memory. When the GPU sees a change, it sees the bytes of all puts before the signal, from
// whichever adapter they came.
func TestSignalsInGPUMemory(t *testing.T) {
	overGPU(t, func(t *testing.T, a, b *gpuSide) {
		const at, n, rounds = size - 16, 66 << 10, 60
		signals := []onesided.Signal{
			{Window: 1, Do: onesided.SignalInc, Offset: at}, {Window: 1, Do: onesided.SignalAdd, Offset: at, Value: 1},
		}
		transporttest.Fill(a.b, 3)
		var begun, seen uint64
		var last onesided.Op
		await(t, "the signals", &a.side, &b.side, func() bool {
			if begun < rounds && (begun < rounds/2 || begun == seen) { // many at a time, and then one by one
				op, err := a.peer.PutSignal(1, begun*n, a.window, begun*n, n, signals[begun%2])
				if err != nil {
					t.Fatal(err)
				}
				if op != 0 {
					begun, last = begun+1, op
				}
			}
			v := b.word(at)
			for ; seen < v; seen++ {
				if !bytes.Equal(a.b[seen*n:][:n], b.b[seen*n:][:n]) {
					t.Fatalf("the bytes of put %d are not there when its signal is seen", seen)
				}
			}
			return seen == rounds
		})
		done(t, "the last operation", &a.side, &b.side, last, nil)
		op, err := a.peer.Signal(onesided.Signal{Window: 1, Do: onesided.SignalSet, Offset: at, Value: 99})
		done(t, "a signal that sets", &a.side, &b.side, op, err)
		await(t, "the word", &a.side, &b.side, func() bool { return b.word(at) == 99 })
		if _, err := b.window.Word(at); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a word of GPU memory for the processor: %v", err)
		}
		var value atomic.Uint64
		load, err := b.window.Load(at, &value)
		if load == 0 || err != nil {
			t.Fatal(load, err)
		}
		await(t, "a load", &a.side, &b.side, func() bool {
			ok, err := b.space.Loaded(load)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
		if value.Load() != 99 {
			t.Errorf("%d was loaded, want 99", value.Load())
		}
		if load, err := b.window.Load(size-4, &value); load != 0 || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a load beyond the window: %d, %v", load, err)
		}
	})
}

// A process copies within its own GPU memory, and changes words of it, by its adapters.
func TestSelfInGPUMemory(t *testing.T) {
	overGPU(t, func(t *testing.T, a, b *gpuSide) {
		self := &side{space: a.space, peer: a.space.Self()}
		transporttest.Fill(a.b[:1<<20], 5)
		op, err := self.peer.PutSignal(1, 2<<20, a.window, 0, 1<<20, onesided.Signal{Window: 1, Do: onesided.SignalAdd, Offset: size - 8, Value: 4})
		if ok, _ := self.peer.Done(op); ok {
			t.Error("an operation that adapters carry out is done at once")
		}
		done(t, "a put and a signal", self, &b.side, op, err)
		if !bytes.Equal(a.b[:1<<20], a.b[2<<20:3<<20]) || a.word(size-8) != 4 {
			t.Errorf("the bytes differ, or the word is %d", a.word(size-8))
		}
		op, err = self.peer.Get(1, 2<<20, a.window, 3<<20, 1000)
		done(t, "a get", self, &b.side, op, err)
		if !bytes.Equal(a.b[:1000], a.b[3<<20:][:1000]) {
			t.Error("the bytes of a get differ")
		}
		flush, err := self.peer.Flush()
		done(t, "a flush", self, &b.side, flush, err)
	})
}

// A signal for a word of GPU memory in a space without a copier fails the connection, with the reason.
func TestNoCopier(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		from, to := transporttest.New(t), transporttest.New(t)
		s1, r1 := transporttest.Connect(t, from, to)
		s2, r2 := transporttest.Connect(t, to, from)
		a, b := newGPUSide(t, from, s1, r2), newSide(t, s2, r1)
		gpu, err := transporttest.WorldOf(t).Fabric.NewGPUMemory(4096)
		if err != nil {
			t.Fatal(err)
		}
		w, err := b.space.Register(lane.GPUMemory, gpu.Addr(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the window", &a.side, b, func() bool { _, ok := a.peer.Window(2); return ok })
		if _, err := a.peer.Signal(onesided.Signal{Window: 2, Do: onesided.SignalInc}); err != nil {
			t.Fatal(err)
		}
		transporttest.Await(t, "the failure", func() bool {
			a.space.Progress()
			b.space.Progress()
			return b.peer.Err() != nil
		})
		if err := b.peer.Err(); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("the peer is lost with %v", err)
		}
		if load, err := w.Load(0, new(atomic.Uint64)); load != 0 || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a load without a copier: %d, %v", load, err)
		}
		if err := errors.Join(a.peer.Close(), b.peer.Close(), a.space.Close(), b.space.Close(), gpu.Free()); err != nil {
			t.Error(err)
		}
	})
}

// Within the process, a signal into host memory comes after the copies of GPU memory that were put before it, and after the signals before it.
func TestSelfSignalsAfterCopies(t *testing.T) {
	overGPU(t, func(t *testing.T, a, b *gpuSide) {
		m, host := transporttest.Memory(t, 4096)
		words, err := a.space.Register(lane.HostMemory, m.Addr(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		first, err := words.Word(0)
		if err != nil {
			t.Fatal(err)
		}
		second, err := words.Word(8)
		if err != nil {
			t.Fatal(err)
		}
		self := a.space.Self()
		const n = 1 << 20
		for i := range uint64(10) {
			transporttest.Fill(a.b[:n], int(i))
			var ops []onesided.Op
			begin := func(op onesided.Op, err error) {
				if op == 0 || err != nil {
					t.Fatal(op, err)
				}
				ops = append(ops, op)
			}
			begin(self.Put(1, n, a.window, 0, n))
			begin(self.Signal(onesided.Signal{Window: words.ID(), Do: onesided.SignalInc, Offset: 0}))
			begin(self.PutSignal(words.ID(), 64, words, 128, 8, onesided.Signal{Window: words.ID(), Do: onesided.SignalInc, Offset: 8}))
			await(t, "the signals", &a.side, &b.side, func() bool {
				if f, s := first.Load(), second.Load(); f < s {
					t.Fatalf("the second signal, %d, is seen before the first, %d", s, f)
				}
				return first.Load() == i+1 && (bytes.Equal(a.b[:n], a.b[n:2*n]) || fail(t, "the bytes are not there when the signal is seen")) && second.Load() == i+1
			})
			for _, op := range ops {
				await(t, "an operation", &a.side, &b.side, func() bool {
					ok, err := self.Done(op)
					if err != nil {
						t.Fatal(err)
					}
					return ok
				})
			}
		}
		if ended, err := words.Close(); err != nil {
			t.Error(err)
		} else if !ended {
			await(t, "the end of the window", &a.side, &b.side, func() bool {
				ended, err := words.Close()
				return ended || err != nil
			})
		}
		clear(host)
	})
}

func fail(t *testing.T, why string) bool {
	t.Helper()
	t.Fatal(why)
	return false
}

// While as many operations are outstanding as may be, no further one begins, also none that the processor could do at once.
func TestManyOutstandingOnSelf(t *testing.T) {
	overGPU(t, func(t *testing.T, a, b *gpuSide) {
		words, word := hostWord(t, a)
		self := a.space.Self()
		last, err := self.Put(1, 1<<20, a.window, 0, 1<<20)
		if last == 0 || err != nil {
			t.Fatal(last, err)
		}
		for range onesided.MaxOps - 1 {
			op, err := self.Signal(onesided.Signal{Window: words.ID(), Do: onesided.SignalInc})
			if op == 0 || err != nil {
				t.Fatal(op, err)
			}
		}
		for name, begin := range map[string]func() (onesided.Op, error){
			"a put": func() (onesided.Op, error) { return self.Put(words.ID(), 64, words, 128, 8) },
			"a get": func() (onesided.Op, error) { return self.Get(words.ID(), 64, words, 128, 8) },
			"a signal": func() (onesided.Op, error) {
				return self.Signal(onesided.Signal{Window: words.ID(), Do: onesided.SignalInc})
			},
			"a put to a GPU":  func() (onesided.Op, error) { return self.Put(1, 1<<20, a.window, 0, 8) },
			"a flush of them": self.Flush,
		} {
			if op, err := begin(); op != 0 || err != nil {
				t.Errorf("%s: operation %d, %v", name, op, err)
			}
		}
		await(t, "all operations", &a.side, &b.side, func() bool { return self.Outstanding() == 0 })
		if n := word.Load(); n != onesided.MaxOps-1 {
			t.Errorf("%d signals, want %d", n, onesided.MaxOps-1)
		}
	})
}

// A window of host memory ends only after the signals into it that wait for copies. If it is abandoned they fail, and the memory is
// not touched any more.
func TestWindowEndsAfterSignalsOnSelf(t *testing.T) {
	overGPU(t, func(t *testing.T, a, b *gpuSide) {
		for _, abandon := range []bool{false, true} {
			words, word := hostWord(t, a)
			self := a.space.Self()
			op, err := self.PutSignal(1, 1<<20, a.window, 0, 1<<20, onesided.Signal{Window: words.ID(), Do: onesided.SignalInc})
			if op == 0 || err != nil {
				t.Fatal(op, err)
			}
			if abandon {
				if err := words.Abandon(); err != nil {
					t.Error(err)
				}
				if ok, err := self.Done(op); !ok || !errors.Is(err, conn.ErrWindowGone) {
					t.Errorf("a signal into a window that was abandoned: done %v, %v", ok, err)
				}
			}
			await(t, "the end of the window", &a.side, &b.side, func() bool {
				ended, err := words.Close()
				if err != nil {
					t.Fatal(err)
				}
				return ended
			})
			want := uint64(1)
			if abandon {
				want = 0
			}
			at := word.Load()
			flush, err := self.Flush()
			done(t, "a flush", &side{space: a.space, peer: self}, &b.side, flush, err)
			if now := word.Load(); at != want || now != want {
				t.Errorf("abandoned %v: the word is %d at the window's end and %d later, want %d", abandon, at, now, want)
			}
		}
	})
}

// Host memory is registered for copies within the process only in a space that has a window in GPU memory, and then all of it.
func TestHostMemoryForCopies(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		device := transporttest.WorldOf(t).Cables[0].Adapters[0].Device
		space := onesided.New()
		space.UseCopier(transporttest.New(t).Copier())
		register := func() *onesided.Window {
			m, _ := transporttest.Memory(t, 4096)
			w, err := space.Register(lane.HostMemory, m.Addr(), 4096)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		none := device.Regions()
		before := register()
		if n := device.Regions(); n != none {
			t.Errorf("%d registrations of a space without GPU memory", n-none)
		}
		gpu := transporttest.GPUMemory(t, 4096)
		w, err := space.Register(lane.GPUMemory, gpu.Addr(), 4096)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(gpu.Bytes(), 11)
		for i, host := range []*onesided.Window{before, register()} {
			op, err := space.Self().Get(w.ID(), 0, host, 64, 8)
			if op == 0 || err != nil {
				t.Fatal(op, err)
			}
			transporttest.Await(t, "a get from GPU memory", func() bool {
				space.Progress()
				ok, err := space.Self().Done(op)
				if err != nil {
					t.Fatal(err)
				}
				return ok
			})
			word, err := host.Word(64)
			if err != nil {
				t.Fatal(err)
			}
			if word.Load() != 11 {
				t.Errorf("host window %d has %d, want 11", i, word.Load())
			}
		}
		device.Refuse("reg_mr", syscall.ENOMEM, 0, 1)
		if _, err := space.Register(lane.GPUMemory, gpu.Addr(), 64); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("a registration that an adapter refuses: %v", err)
		}
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
}

// hostWord registers another window, in host memory, and returns its first word.
func hostWord(t *testing.T, a *gpuSide) (*onesided.Window, *atomic.Uint64) {
	t.Helper()
	m, _ := transporttest.Memory(t, 4096)
	w, err := a.space.Register(lane.HostMemory, m.Addr(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	word, err := w.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	return w, word
}

// A window may begin inside a page of a DMA-BUF, whose descriptor stands for memory from the page's beginning. The end of the
// space closes the copies of the descriptor.
func TestWindowInsidePage(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		tr := transporttest.New(t)
		space := onesided.New()
		space.UseCopier(tr.Copier())
		gpu := transporttest.GPUMemory(t, 1<<16)
		const inside, n = 24, 4096
		before := descriptorsOf(t, gpu.FD())
		w, err := space.RegisterDMABuf(lane.GPUMemory, gpu.Addr()+inside, 1<<16-inside, 0, gpu.FD())
		if err != nil {
			t.Fatal(err)
		}
		if got := descriptorsOf(t, gpu.FD()); got != before+1 {
			t.Errorf("%d descriptors of the memory, want %d", got, before+1)
		}
		transporttest.Fill(gpu.Bytes()[inside:][:n], 3)
		op, err := space.Self().Put(w.ID(), 2*n, w, 0, n)
		if op == 0 || err != nil {
			t.Fatal(op, err)
		}
		transporttest.Await(t, "the put", func() bool {
			space.Progress()
			ok, err := space.Self().Done(op)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
		if !bytes.Equal(gpu.Bytes()[inside:][:n], gpu.Bytes()[inside+2*n:][:n]) {
			t.Error("the bytes differ")
		}
		if err := space.Close(); err != nil {
			t.Error(err)
		}
		if got := descriptorsOf(t, gpu.FD()); got != before {
			t.Errorf("%d descriptors of the memory after the end of the space, want %d", got, before)
		}
	})
}

// descriptorsOf returns how many descriptors this process has of the file that one of them stands for.
func descriptorsOf(t *testing.T, fd int) (n int) {
	t.Helper()
	file, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if other, err := os.Stat("/proc/self/fd/" + e.Name()); err == nil && os.SameFile(file, other) {
			n++
		}
	}
	return n
}
