package turn

import (
	"sync"
	"sync/atomic"
)

// A Turn is a mutex that may be held across a wait. The zero value is free. Taking a free turn and giving back one that
// nobody waits for take one atomic operation each, and allocate nothing. A goroutine that has to wait does so on a channel,
// which belongs to the bubble of the goroutine that meets the first wait.
type Turn struct {
	held atomic.Int32 // the holder, and those that wait
	once sync.Once
	next chan struct{} // hands the turn to one that waits
}

var _ sync.Locker = (*Turn)(nil)

func (t *Turn) queue() chan struct{} {
	t.once.Do(func() { t.next = make(chan struct{}, 1) })
	return t.next
}

// Lock takes the turn. It waits while another goroutine holds it; those that wait have it in the order in which they came.
func (t *Turn) Lock() {
	if t.held.Add(1) > 1 {
		<-t.queue()
	}
}

// TryLock takes the turn if nobody holds it, and reports whether it did.
func (t *Turn) TryLock() bool { return t.held.CompareAndSwap(0, 1) }

// Unlock gives the turn back, to the goroutine that has waited longest if there is one. It panics when nobody holds the
// turn.
func (t *Turn) Unlock() {
	switch left := t.held.Add(-1); {
	case left > 0:
		t.queue() <- struct{}{} // never waits: a turn is handed on by its holder only
	case left < 0:
		panic("turn: given back without being held")
	}
}
