package forkfd

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// marked walks the table as the fork handler does.
func marked() []int {
	var fds []int
	addr, bits := Table()
	words := unsafe.Slice(*(**uint64)(unsafe.Pointer(&addr)), bits/64)
	for i := range words {
		w := atomic.LoadUint64(&words[i])
		for b := range 64 {
			if w&(1<<b) != 0 {
				fds = append(fds, i*64+b)
			}
		}
	}
	return fds
}

func TestMarkAndClear(t *testing.T) {
	steps := []struct {
		name string
		do   func()
		want []int
	}{
		{"empty", func() {}, nil},
		{"first and last", func() { Mark(0); Mark(63); Mark(64); Mark(Bits - 1) }, []int{0, 63, 64, Bits - 1}},
		{"twice", func() { Mark(64) }, []int{0, 63, 64, Bits - 1}},
		{"of a process that has very many", func() { Mark(1<<16 + 1) }, []int{0, 63, 64, 1<<16 + 1, Bits - 1}},
		{"but not any more", func() { Clear(1<<16 + 1) }, []int{0, 63, 64, Bits - 1}},
		{"outside", func() { Mark(-1); Mark(Bits); Clear(-1); Clear(Bits) }, []int{0, 63, 64, Bits - 1}},
		{"clear one", func() { Clear(63) }, []int{0, 64, Bits - 1}},
		{"clear an unmarked one", func() { Clear(62) }, []int{0, 64, Bits - 1}},
		{"clear all", func() { Clear(0); Clear(64); Clear(Bits - 1) }, nil},
	}
	for _, s := range steps {
		s.do()
		if diff := cmp.Diff(s.want, marked()); diff != "" {
			t.Errorf("%s: descriptors (-want +got):\n%s", s.name, diff)
		}
	}
}

func TestConcurrentBitsOfOneWord(t *testing.T) {
	var wg sync.WaitGroup
	for fd := range 64 {
		wg.Go(func() {
			for range 100 {
				Mark(fd)
				Clear(fd)
			}
			if fd%2 == 0 {
				Mark(fd)
			}
		})
	}
	wg.Wait()
	var want []int
	for fd := 0; fd < 64; fd += 2 {
		want = append(want, fd)
	}
	if diff := cmp.Diff(want, marked()); diff != "" {
		t.Errorf("descriptors (-want +got):\n%s", diff)
	}
	for fd := range 64 {
		Clear(fd)
	}
}

// A copy of a descriptor is marked until it is closed.
func TestCopy(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd, err := Copy(int(null.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{fd}, marked()); diff != "" {
		t.Errorf("with the copy: descriptors (-want +got):\n%s", diff)
	}
	if err := CloseFD(fd); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]int(nil), marked()); diff != "" {
		t.Errorf("without it: descriptors (-want +got):\n%s", diff)
	}
	if _, err := Copy(-1); err == nil {
		t.Error("a descriptor that is not open was copied")
	}
}
