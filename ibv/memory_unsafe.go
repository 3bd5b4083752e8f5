package ibv

// This file isolates memory outside the Go heap: mappings that devices and C may keep addresses of.

import (
	"fmt"
	"os"
	"reflect"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Memory is anonymous memory outside the Go heap, page-aligned and zeroed. A forked child does not inherit it, so that
// pages under a device are never copied on write.
type Memory struct {
	mu    sync.Mutex
	bytes []byte
	next  int // where Carve continues
	addr  uintptr
	n     int
}

// carveAlign keeps what different Carve calls return on different cache lines.
const carveAlign = 64

// Alloc maps at least size bytes, rounded up to whole pages.
func Alloc(size int) (*Memory, error) {
	page := os.Getpagesize()
	if size <= 0 || size > int(^uint(0)>>1)-page {
		return nil, fmt.Errorf("ibv: cannot map %d bytes: the size must be positive", size)
	}
	n := (size + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("ibv: cannot map %d bytes: %w", n, err)
	}
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		_ = unix.Munmap(b)
		return nil, fmt.Errorf("ibv: cannot keep %d mapped bytes from forked children: %w", n, err)
	}
	live[kindMemory].Add(1)
	return &Memory{bytes: b, addr: uintptr(unsafe.Pointer(&b[0])), n: n}, nil
}

// Addr is the address of the first byte.
func (m *Memory) Addr() uintptr { return m.addr }

// Len is the size in bytes.
func (m *Memory) Len() int { return m.n }

// Bytes is the whole memory, valid until Free.
func (m *Memory) Bytes() []byte { return m.bytes }

// Free unmaps the memory. Nothing may refer to it any more: no region, no posted request, no Go slice. It is idempotent.
func (m *Memory) Free() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes == nil {
		return nil
	}
	if err := unix.Munmap(m.bytes); err != nil {
		return fmt.Errorf("ibv: cannot unmap %d bytes: %w", m.n, err)
	}
	m.bytes = nil
	live[kindMemory].Add(-1)
	return nil
}

// A Pool has memories of one size that stay mapped for as long as the process lives: who looks at one a moment after it was
// given back must find it there. Its methods may be called from any goroutine.
type Pool struct {
	size int
	mu   sync.Mutex
	rest []*Memory // oldest first, so that each rests for long
}

// NewPool makes a pool of memories of at least size bytes.
func NewPool(size int) *Pool { return &Pool{size: size} }

// Get returns a memory, zeroed.
func (p *Pool) Get() (*Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) == 0 {
		return Alloc(p.size)
	}
	m := p.rest[0]
	p.rest = p.rest[1:]
	live[kindMemory].Add(1)
	return m, nil
}

// Put gives a memory of the pool back. No device may use it any more, and what is read of it from here on means nothing.
func (p *Pool) Put(m *Memory) {
	if unix.Madvise(m.bytes, unix.MADV_DONTNEED) != nil { // as with memory that is locked: it goes on taking room
		clear(m.bytes)
	}
	live[kindMemory].Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.next = 0
	p.rest = append(p.rest, m)
}

// Carve returns the next n zeroed Ts of the memory, on a 64-byte boundary. It panics when they do not fit, when the memory
// has been freed, or when T holds Go pointers: each is a mistake in the caller's arithmetic, not a condition.
func Carve[T any](m *Memory, n int) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := reflect.TypeFor[T]()
	if holdsPointers(t) {
		panic(fmt.Sprintf("ibv: %v holds Go pointers and cannot lie outside the Go heap", t))
	}
	start := (m.next + carveAlign - 1) / carveAlign * carveAlign
	if size := int(t.Size()); n < 0 || start > len(m.bytes) || size > 0 && n > (len(m.bytes)-start)/size {
		panic(fmt.Sprintf("ibv: %d × %v (%d bytes each) do not fit into the %d bytes left of %d",
			n, t, t.Size(), max(len(m.bytes)-start, 0), len(m.bytes)))
	}
	m.next = start + n*int(t.Size())
	return unsafe.Slice(at[T](m.addr+uintptr(start)), n)
}

// AddrOf is the address of something in a Memory.
func AddrOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func holdsPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64,
		reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && holdsPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return true
	}
}
