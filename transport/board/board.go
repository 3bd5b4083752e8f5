package board

import (
	"sync"
	"sync/atomic"

	"ncclmesh/ibv"
)

// Board is the board of one connection. The zero Board has no memory: what is written
// on it is lost. ComeIn, Enter and Outstanding may be called from any goroutine,
// all else by one at a time.
type Board struct {
	words atomic.Pointer[Words] // while it has memory

	mu       sync.Mutex // guards what follows, and the words Comm and Come
	mem      *ibv.Memory
	disabled bool
}

var memories = ibv.NewPool(size)

// Open gives the board memory. ring is where grants come, 0 at a receiver.
func (b *Board) Open(ring uintptr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, err := memories.Get()
	if err != nil {
		return err
	}
	w := wordsOf(m)
	w.Head.Store(1)
	if b.disabled {
		w.Disabled.Store(1)
	} else {
		w.Ring.Store(uint64(ring))
	}
	b.mem = m
	b.words.Store(w)
	return nil
}

// Close gives the memory back. It may be called again.
func (b *Board) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.words.Store(nil)
	if b.mem != nil {
		memories.Put(b.mem)
		b.mem = nil
	}
}

// Enter puts the connection's handle on the board and returns where it lies, or 0 where C
// need not look: every call is Go's.
func (b *Board) Publish(comm uint64) uintptr {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.words.Load()
	if w == nil || b.disabled {
		return 0
	}
	w.Comm.Store(comm)
	return w.Addr()
}

// ComeIn makes every further call Go's.
func (b *Board) Disable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disabled = true
	if w := b.words.Load(); w != nil {
		w.Disabled.Store(1)
		w.Ring.Store(0)
	}
}

// Polled says that the connection has been polled: what that found is on the board.
func (b *Board) NotePoll() {
	if w := b.words.Load(); w != nil {
		w.Polls.Store(w.Polls.Load() + 1)
	}
}

// Next says which grant the next send needs.
func (b *Board) SetHead(seq uint64) {
	if w := b.words.Load(); w != nil {
		w.Head.Store(seq)
	}
}

// Misses is how many sends have found no grant.
func (b *Board) GrantMisses() uint64 {
	if w := b.words.Load(); w != nil {
		return w.GrantMisses.Load()
	}
	return 0
}

// Begin says that a request is outstanding.
func (b *Board) Begin(request int, generation uint64) {
	if w := b.words.Load(); w != nil {
		w.Answers[request].State.Store(generation << 1)
	}
}

// Sizes is where the sizes of a request go before Done says that they are there.
func (b *Board) Sizes(request, n int) []uint32 {
	w := b.words.Load()
	if w == nil {
		return nil
	}
	a := &w.Answers[request]
	a.N = uint32(n)
	return a.Sizes[:n]
}

// Done says that a request is done.
func (b *Board) Done(request int, generation uint64) {
	if w := b.words.Load(); w != nil {
		w.Answers[request].State.Store(generation<<1 | 1)
	}
}

// End says that a request is no more: its answer was given in Go.
func (b *Board) End(request int) {
	if w := b.words.Load(); w != nil {
		w.Answers[request].State.Store(0)
	}
}

// Taken reports whether C has the answer of a request; it looks at it no more.
func (b *Board) Taken(request int, generation uint64) bool {
	w := b.words.Load()
	return w != nil && w.Consumers[request].Taken.Load() == generation
}

// Outstanding is the generation in which a request is outstanding, or 0.
func (b *Board) Outstanding(request int) uint64 {
	w := b.words.Load()
	if w == nil {
		return 0
	}
	g := w.Answers[request].State.Load() >> 1
	if w.Consumers[request].Taken.Load() == g {
		return 0
	}
	return g
}
