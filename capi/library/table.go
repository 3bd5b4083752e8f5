package main

import (
	"fmt"
	"sync"

	"ncclmesh/comm"
)

// A table holds the objects of one kind that C has numbers of. Numbers are not used again.
type table[T any] struct {
	kind string // in errors

	mu      sync.RWMutex
	objects map[uint64]*T
}

// numbers counts the objects of all kinds, so that a number of one kind is none of another. They do not begin at 1, so that a small
// integer in the place of an object is an error.
var numbers = struct {
	sync.Mutex
	last uint64
}{last: 0x6d65736800000000}

// put adds an object, and returns its number.
func (t *table[T]) put(o *T) uint64 {
	numbers.Lock()
	numbers.last++
	n := numbers.last
	numbers.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.objects == nil {
		t.objects = map[uint64]*T{}
	}
	t.objects[n] = o
	return n
}

// get returns the object of a number.
func (t *table[T]) get(n uint64) (*T, error) {
	t.mu.RLock()
	o := t.objects[n]
	t.mu.RUnlock()
	if o == nil {
		return nil, t.unknown(n)
	}
	return o, nil
}

// take removes an object, and returns it.
func (t *table[T]) take(n uint64) (*T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[n]
	if o == nil {
		return nil, t.unknown(n)
	}
	delete(t.objects, n)
	return o, nil
}

func (t *table[T]) unknown(n uint64) error {
	if n == 0 {
		return fmt.Errorf("%w: the %s is NULL", comm.ErrArgument, t.kind)
	}
	return fmt.Errorf("%w: %#x is no %s of this process, or has been destroyed", comm.ErrArgument, n, t.kind)
}
