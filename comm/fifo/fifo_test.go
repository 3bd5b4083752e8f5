package fifo

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newFIFO makes a FIFO that the end of the test frees.
func newFIFO(t *testing.T) *FIFO {
	t.Helper()
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Free(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// The words are public: ncclmesh.h has the same.
func TestWords(t *testing.T) {
	tests := []struct {
		name   string
		n      uint64
		t      Trigger
		w0, w1 uint64
	}{
		{"a put of nothing at 0", 0, Trigger{Kind: Put}, 0x8100000000000000, 0},
		{"the next lap", 128, Trigger{Kind: Put}, 0x0100000000000000, 0},
		{"and the one after", 256, Trigger{Kind: Put}, 0x8100000000000000, 0},
		{"a signal", 127, Trigger{Kind: Signal}, 0x8200000000000000, 0},
		{"a flush", 128, Trigger{Kind: Flush}, 0x0400000000000000, 0},
		{"a size", 1, Trigger{Kind: Put | Signal, Size: 0x1234567890}, 0x8300001234567890, 0},
		{"a destination", 1, Trigger{Kind: Put, Dst: 0x1234567890}, 0x8100000000000000, 0x1234567890},
		{"a source", 1, Trigger{Kind: Put, Src: 0x1234567890}, 0x8112340000000000, 0x5678900000000000},
		{"all", 200, Trigger{Kind: Put | Signal | Flush, Size: Limit - 1, Dst: Limit - 1, Src: Limit - 1}, 0x07ffffffffffffff, 0xffffffffffffffff},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w0, w1, err := tt.t.encode(tt.n)
			if err != nil || w0 != tt.w0 || w1 != tt.w1 {
				t.Errorf("words %#016x, %#016x, %v; want %#016x, %#016x", w0, w1, err, tt.w0, tt.w1)
			}
			got, err := decode(w0, w1)
			if diff := cmp.Diff(tt.t, got); diff != "" || err != nil {
				t.Errorf("read (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint64(0), uint64(0))
	f.Add(uint64(0x8100000000000000), uint64(1))
	f.Fuzz(func(t *testing.T, w0, w1 uint64) {
		got, err := decode(w0, w1)
		if err != nil {
			return
		}
		n := uint64(0)
		if w0>>lapBit == 0 {
			n = Slots
		}
		if a, b, err := got.encode(n); a != w0 || b != w1 || err != nil {
			t.Errorf("%#x, %#x is %+v, which is %#x, %#x, %v", w0, w1, got, a, b, err)
		}
	})
}

func TestBadTriggers(t *testing.T) {
	f := newFIFO(t)
	for _, tt := range []struct {
		t    Trigger
		want string
	}{
		{Trigger{}, "no known kind: 0x0"},
		{Trigger{Kind: 8}, "no known kind: 0x8"},
		{Trigger{Kind: Put, Size: Limit}, "a trigger of 1099511627776 bytes from offset 0 to 0"},
		{Trigger{Kind: Put, Src: Limit}, "from offset 1099511627776 to 0"},
		{Trigger{Kind: Put, Dst: Limit}, "from offset 0 to 1099511627776"},
	} {
		if _, ok, err := f.Push(&tt.t); ok || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, %v; want %q", tt.t, ok, err, tt.want)
		}
	}
	f.slots[0].word0.Store(1 << lapBit) // a producer that does not know the layout
	if _, ok, err := f.Poll(); !ok || err == nil {
		t.Errorf("a trigger without a kind: %v, %v; want an error", ok, err)
	}
	f.Executed()
	if _, ok, err := f.Poll(); ok || err != nil || f.Tail() != 1 {
		t.Errorf("after it: %v, %v, tail %d", ok, err, f.Tail())
	}
}

// MSCCL++'s FIFO of 2023 does not see a put of 0 bytes at offset 0, because an empty slot is one whose first word is 0.
func TestPutOfNothingIsSeen(t *testing.T) {
	f := newFIFO(t)
	for n := range uint64(3 * Slots) {
		if _, ok, _ := f.Poll(); ok {
			t.Fatalf("trigger %d is there before it is pushed", n)
		}
		if got, ok, err := f.Push(&Trigger{Kind: Put}); got != n || !ok || err != nil {
			t.Fatalf("push: %d, %v, %v; want trigger %d", got, ok, err, n)
		}
		got, ok, err := f.Poll()
		if diff := cmp.Diff(Trigger{Kind: Put}, got); diff != "" || !ok || err != nil {
			t.Fatalf("trigger %d (-want +got):\n%s%v, %v", n, diff, ok, err)
		}
		f.Executed()
	}
}

func TestFull(t *testing.T) {
	f := newFIFO(t)
	put := Trigger{Kind: Put, Size: 1}
	for range Slots {
		if _, ok, err := f.Push(&put); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if _, ok, err := f.Push(&put); ok || err != nil {
		t.Errorf("one more: %v, %v; want that it is full", ok, err)
	}
	f.Poll()
	f.Executed()
	if n, ok, err := f.Push(&put); n != Slots || !ok || err != nil {
		t.Errorf("after one was executed: %d, %v, %v", n, ok, err)
	}
}

// The first failure stays.
func TestFailure(t *testing.T) {
	f := newFIFO(t)
	if f.Failure() != 0 {
		t.Error("a failure at first")
	}
	f.Fail(6)
	f.Fail(3)
	if f.Failure() != 6 {
		t.Errorf("failure %d, want 6", f.Failure())
	}
}

// Triggers of several producers are all executed once, those of one producer in order.
func TestProducers(t *testing.T) {
	const producers, each = 4, 5000
	f := newFIFO(t)
	var all sync.WaitGroup
	for p := range uint64(producers) {
		all.Go(func() {
			for i := uint64(0); i < each; {
				if _, ok, err := f.Push(&Trigger{Kind: Put, Dst: p, Size: i}); err != nil {
					t.Error(err)
					return
				} else if ok {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var next [producers]uint64
	for n := 0; n < producers*each; {
		got, ok, err := f.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			runtime.Gosched()
			continue
		}
		if got.Size != next[got.Dst] {
			t.Fatalf("producer %d: trigger %d, want %d", got.Dst, got.Size, next[got.Dst])
		}
		next[got.Dst]++
		n++
		f.Executed()
	}
	all.Wait()
	if diff := cmp.Diff(fmt.Sprint([producers]uint64{each, each, each, each}), fmt.Sprint(next)); diff != "" {
		t.Error(diff)
	}
}

func TestFIFOAllocatesNothing(t *testing.T) {
	f := newFIFO(t)
	put := Trigger{Kind: Put, Size: 1}
	if n := testing.AllocsPerRun(100, func() {
		f.Push(&put)
		f.Poll()
		f.Executed()
	}); n > 0 {
		t.Errorf("%v allocations for a trigger", n)
	}
}
