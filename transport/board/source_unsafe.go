package board

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"ncclmesh/ibv"
)

// SourceSize is how many bytes of memory a Source takes.
const SourceSize = int(unsafe.Sizeof(Source{}))

// Source is a completion queue at which C looks where it would else call Go only to hear that nothing has come. It lies in memory that
// is not Go's. Whoever looks at the queue holds it; what C finds it leaves there, and calls Go.
type Source struct {
	_     structs.HostLayout
	held  atomic.Uint32
	found atomic.Uint32 // entries that C has found, and nobody has taken; written by who holds it
	poll  uint64        // of libibverbs: int (*)(queue, most, entries)
	queue uint64
	at    uint64 // where entries go
	most  uint32 // of them
	_     [28]byte
}

// NewSource makes a source of a completion queue in memory of at least SourceSize. poll is what C calls with the queue, a number of
// entries and where they go: at, with room for most. Where it is 0 C does not look.
func NewSource(m *ibv.Memory, poll, queue, at uintptr, most int) *Source {
	s := &ibv.Carve[Source](m, 1)[0]
	s.poll, s.queue, s.at, s.most = uint64(poll), uint64(queue), uint64(at), uint32(most)
	return s
}

// Hold takes hold of the queue, and reports whether it could: nobody else looks at it now.
func (s *Source) TryAcquire() bool { return s.held.CompareAndSwap(0, 1) }

// Release lets others look.
func (s *Source) Release() { s.held.Store(0) }

// Take returns how many entries C has found, which lie where they go. The caller holds the source, and has them now.
func (s *Source) Take() int {
	n := s.found.Load()
	if n != 0 {
		s.found.Store(0)
	}
	return int(n)
}

// Look tells C at which queues to look: those of all the connection's domains. Where one of them is nil, or C cannot look, it
// looks at none.
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
