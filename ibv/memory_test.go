package ibv

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

func TestMemory(t *testing.T) {
	page := os.Getpagesize()
	m, err := Alloc(page + 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Len() != 2*page || len(m.Bytes()) != 2*page || m.Addr()%uintptr(page) != 0 {
		t.Errorf("%d bytes at %#x, slice of %d; want two whole pages", m.Len(), m.Addr(), len(m.Bytes()))
	}
	for i, b := range m.Bytes() {
		if b != 0 {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
	a := Carve[uint32](m, 3)
	b := Carve[SendWR](m, 2)
	if len(a) != 3 || len(b) != 2 || AddrOf(&a[0]) != m.Addr() || AddrOf(&b[0]) != m.Addr()+64 || AddrOf(&b[1]) != m.Addr()+64+128 {
		t.Errorf("carved %d at %#x and %d at %#x from %#x", len(a), AddrOf(&a[0]), len(b), AddrOf(&b[0]), m.Addr())
	}
	b[1].WRID = 0x42
	if m.Bytes()[64+128] != 0x42 {
		t.Error("what was carved is not the memory")
	}
	if n := Live()["memories"]; n != 1 {
		t.Errorf("%d memories live, want 1", n)
	}
	for range 2 {
		if err := m.Free(); err != nil {
			t.Fatal(err)
		}
	}
	if n := Live()["memories"]; n != 0 {
		t.Errorf("%d memories live after Free", n)
	}
}

func TestMemoryIsNotInheritedByChildren(t *testing.T) {
	m, err := Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Free() }()
	if unix.Madvise(m.Bytes(), 12345) == nil {
		require.Skip(t, "madvise", "this kernel, or its emulation, ignores madvise")
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		require.Skip(t, "smaps", err.Error())
	}
	inside := false
	for line := range strings.Lines(string(smaps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= m.Addr() && m.Addr() < to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			if !strings.Contains(flags+" ", " dc ") {
				t.Errorf("VmFlags %q lack dc, do not copy on fork", flags)
			}
			return
		}
	}
	require.Skip(t, "smaps", "smaps has no VmFlags here")
}

// What was given back stays where it is, takes no room, and is zeroed when it comes again.
func TestPool(t *testing.T) {
	p := NewPool(3)
	m, err := p.Get()
	if err != nil {
		t.Fatal(err)
	}
	word := &Carve[uint64](m, 1)[0]
	*word = 42
	if n := Live()["memories"]; n != 1 {
		t.Errorf("%d memories live, want 1", n)
	}
	p.Put(m)
	if n := Live()["memories"]; n != 0 {
		t.Errorf("%d memories live after Put", n)
	}
	if *word != 0 {
		t.Errorf("%d is left in it", *word)
	}
	again, err := p.Get()
	if err != nil {
		t.Fatal(err)
	}
	if again != m || &Carve[uint64](again, 1)[0] != word {
		t.Error("another memory came")
	}
	if other, err := p.Get(); err != nil || other.Addr() == m.Addr() {
		t.Errorf("the second of two: %v", err)
	} else {
		p.Put(other)
	}
	p.Put(again)
	if first, err := p.Get(); err != nil || first == again {
		t.Errorf("what rested shorter came first: %v", err)
	} else {
		p.Put(first)
	}
}

func TestMemoryMistakes(t *testing.T) {
	for _, size := range []int{0, -1, int(^uint(0) >> 1)} {
		if _, err := Alloc(size); err == nil {
			t.Errorf("Alloc(%d) succeeded", size)
		}
	}
	m, err := Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	room := m.Len()
	mustPanic(t, "too many", func() { Carve[byte](m, room+1) })
	mustPanic(t, "negative", func() { Carve[byte](m, -1) })
	mustPanic(t, "huge", func() { Carve[uint64](m, int(^uint(0)>>1)) })
	mustPanic(t, "a pointer", func() { Carve[*int](m, 1) })
	mustPanic(t, "a hidden pointer", func() { Carve[struct{ a [2]string }](m, 1) })
	mustPanic(t, "after it ends", func() { _ = Carve[byte](m, room); Carve[byte](m, 1) })
	if err := m.Free(); err != nil {
		t.Fatal(err)
	}
	mustPanic(t, "freed", func() { Carve[byte](m, 1) })
}

func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	f()
}
