package board

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"ncclmesh/ibv"
)

// SourceSize is the size of a Source in bytes.
const SourceSize = int(unsafe.Sizeof(Source{}))

// Source is a completion queue that C polls, so that it need not call Go if no completion has arrived. It lies
// outside the Go heap. A poller, in C or in Go, holds the source's lock; C leaves the entries that it has
// polled in place and calls Go, which handles them.
type Source struct {
	_     structs.HostLayout
	held  atomic.Uint32
	found atomic.Uint32 // entries that C has polled and Go has not taken; written by the holder of the lock
	poll  uint64        // address of libibverbs' int (*)(queue, most, entries)
	queue uint64
	at    uint64 // address for the entries
	most  uint32 // number of entries that there is room for
	_     [28]byte
}

// NewSource creates the source of a completion queue in memory of at least SourceSize bytes. poll is the
// address of the function that C calls with the queue, a number of entries and the address at, where there is
// room for most entries. If poll is 0, C does not poll the queue.
func NewSource(m *ibv.Memory, poll, queue, at uintptr, most int) *Source {
	s := &ibv.Carve[Source](m, 1)[0]
	s.poll, s.queue, s.at, s.most = uint64(poll), uint64(queue), uint64(at), uint32(most)
	return s
}

// TryAcquire locks the source. It returns false if another thread holds the lock.
func (s *Source) TryAcquire() bool { return s.held.CompareAndSwap(0, 1) }

// Release unlocks the source.
func (s *Source) Release() { s.held.Store(0) }

// Take returns the number of entries that C has polled and resets it to 0. The entries are in the memory that
// was passed to NewSource.
//
// Preconditions: the caller holds the lock.
func (s *Source) Take() int {
	n := s.found.Load()
	if n != 0 {
		s.found.Store(0)
	}
	return int(n)
}

// SetSources sets the completion queues that C polls: one for each of the connection's domains. If one of them
// is nil, cannot be polled by C, or there are more than MaxSources, C polls none.
func (b *Board) SetSources(sources ...*Source) {
	w := b.words.Load()
	if w == nil {
		return
	}
	n := len(sources)
	if n > MaxSources {
		n = 0
	}
	for i, s := range sources[:n] {
		if s == nil || s.poll == 0 {
			n = 0
			break
		}
		w.Source[i].Store(uint64(uintptr(unsafe.Pointer(s))))
	}
	w.Sources.Store(uint64(n))
}
