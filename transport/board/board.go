package board

import (
	"sync"
	"sync/atomic"

	"ncclmesh/ibv"
)

// Board is the completion page of one connection. The zero Board has no memory, and writes to it have no
// effect. Disable, Publish and Outstanding may be called from any goroutine; the other methods must not be
// called concurrently.
type Board struct {
	words atomic.Pointer[Words] // nil while the board has no memory

	mu       sync.Mutex // guards the fields below, and the words Comm and Disabled
	mem      *ibv.Memory
	disabled bool
}

var memories = ibv.NewPool(size)

// Open allocates the board's memory. ring is the address of the grant ring, 0 at a receiver.
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

// Close frees the board's memory. It may be called again.
func (b *Board) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.words.Store(nil)
	if b.mem != nil {
		memories.Put(b.mem)
		b.mem = nil
	}
}

// Publish stores the connection's handle on the board and returns the board's address for C. It returns 0 if
// the board has no memory or is disabled, so that every call goes to Go.
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

// Disable makes C pass every further call for the connection to Go.
func (b *Board) Disable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disabled = true
	if w := b.words.Load(); w != nil {
		w.Disabled.Store(1)
		w.Ring.Store(0)
	}
}

// NotePoll counts a poll of the connection, after its results were stored on the board.
func (b *Board) NotePoll() {
	if w := b.words.Load(); w != nil {
		w.Polls.Store(w.Polls.Load() + 1)
	}
}

// SetHead stores the sequence of the grant that the next send needs.
func (b *Board) SetHead(seq uint64) {
	if w := b.words.Load(); w != nil {
		w.Head.Store(seq)
	}
}

// GrantMisses returns the number of sends for which C found no grant.
func (b *Board) GrantMisses() uint64 {
	if w := b.words.Load(); w != nil {
		return w.GrantMisses.Load()
	}
	return 0
}

// Begin marks a request as outstanding.
func (b *Board) Begin(request int, generation uint64) {
	if w := b.words.Load(); w != nil {
		w.Answers[request].State.Store(generation << 1)
	}
}

// Sizes returns the slice for the sizes of a request's n messages. The caller fills it before it calls Done.
// The slice is nil if the board has no memory.
func (b *Board) Sizes(request, n int) []uint32 {
	w := b.words.Load()
	if w == nil {
		return nil
	}
	a := &w.Answers[request]
	a.N = uint32(n)
	return a.Sizes[:n]
}

// Done marks a request as done.
func (b *Board) Done(request int, generation uint64) {
	if w := b.words.Load(); w != nil {
		w.Answers[request].State.Store(generation<<1 | 1)
	}
}

// End marks a request as not outstanding, after Go has returned its result to NCCL.
func (b *Board) End(request int) {
	if w := b.words.Load(); w != nil {
		w.Answers[request].State.Store(0)
	}
}

// Taken reports whether C has returned the result of a request to NCCL; C does not read it again.
func (b *Board) Taken(request int, generation uint64) bool {
	w := b.words.Load()
	return w != nil && w.Consumers[request].Taken.Load() == generation
}

// Outstanding returns the generation in which a request is outstanding, or 0.
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
