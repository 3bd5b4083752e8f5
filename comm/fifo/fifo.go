package fifo

import (
	"sync/atomic"

	"ncclmesh/ibv"
)

// Slots is the number of triggers that a FIFO holds.
const Slots = 128

// words are the words before the slots.
type words struct {
	head    atomic.Uint64
	_       [7]uint64 // producers and the proxy write to different cache lines
	tail    atomic.Uint64
	_       [7]uint64
	failure atomic.Uint64
	_       [15]uint64
}

// slot is the place of a trigger.
type slot struct{ word0, word1 atomic.Uint64 }

// A FIFO is a queue of triggers in memory outside the Go heap.
type FIFO struct {
	memory *ibv.Memory
	words  *words
	slots  []slot
	next   uint64 // number of the trigger that Poll returns next; the proxy's
}

// Size is the size of the memory of a FIFO, in bytes.
const Size = 256 + Slots*16

// New makes an empty FIFO.
func New() (*FIFO, error) {
	m, err := ibv.Alloc(Size)
	if err != nil {
		return nil, err
	}
	return &FIFO{memory: m, words: &ibv.Carve[words](m, 1)[0], slots: ibv.Carve[slot](m, Slots)}, nil
}

// Addr returns the address of the memory, which begins at a page of its own.
func (f *FIFO) Addr() uintptr { return f.memory.Addr() }

// Free frees the memory. No producer may push any more.
func (f *FIFO) Free() error { return f.memory.Free() }

// Push adds a trigger. It returns the trigger's number, or false if the FIFO is full and the caller has to try again. It may be
// called from any goroutine, while a GPU or other processors push too.
func (f *FIFO) Push(t *Trigger) (n uint64, ok bool, err error) {
	for {
		n = f.words.head.Load()
		w0, w1, err := t.encode(n)
		if err != nil || n-f.words.tail.Load() >= Slots {
			return 0, false, err
		}
		if f.words.head.CompareAndSwap(n, n+1) {
			s := &f.slots[n%Slots]
			s.word1.Store(w1)
			s.word0.Store(w0)
			return n, true, nil
		}
	}
}

// Poll returns the next trigger, or false if there is none. A proxy calls it; it calls Executed before the next Poll. An error
// means that a producer has pushed words that are no trigger; the proxy skips them by calling Executed.
func (f *FIFO) Poll() (t Trigger, ok bool, err error) {
	s := &f.slots[f.next%Slots]
	w0 := s.word0.Load()
	if w0>>lapBit != lap(f.next) {
		return t, false, nil
	}
	t, err = decode(w0, s.word1.Load())
	return t, true, err
}

// Executed publishes that the trigger which Poll has returned was executed.
func (f *FIFO) Executed() {
	f.next++
	f.words.tail.Store(f.next)
}

// Tail returns the number of triggers that were executed: trigger n was if n is below it.
func (f *FIFO) Tail() uint64 { return f.words.tail.Load() }

// Fail publishes the result code of a trigger that failed, before the trigger counts as executed. The first code stays.
func (f *FIFO) Fail(code uint64) { f.words.failure.CompareAndSwap(0, code) }

// Failure returns the code that Fail has published, or 0.
func (f *FIFO) Failure() uint64 { return f.words.failure.Load() }
