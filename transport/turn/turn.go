package turn

import "sync"

// A Turn is held by one at a time. The zero value is free. A goroutine that waits for it waits on a channel, which belongs to
// the bubble of the first that locked it.
type Turn struct {
	once sync.Once
	free chan struct{} // has an element while nobody holds the turn
}

var _ sync.Locker = (*Turn)(nil)

func (t *Turn) place() chan struct{} {
	t.once.Do(func() {
		t.free = make(chan struct{}, 1)
		t.free <- struct{}{}
	})
	return t.free
}

// Lock takes the turn, and waits for it first.
func (t *Turn) Lock() { <-t.place() }

// Unlock gives the turn back. It panics when nobody holds it.
func (t *Turn) Unlock() {
	select {
	case t.place() <- struct{}{}:
	default:
		panic("turn: given back without being held")
	}
}
