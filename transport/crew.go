package transport

import (
	"runtime"
	"sync"
	"time"

	"ncclmesh/guard"
)

// How many set-ups and closes may be inside verbs at once, of all connections
// together.
const (
	makers    = 2  // that make and destroy, which takes microseconds to milliseconds
	resolvers = 16 // that take queue pairs to RTR, which takes up to a second

	crewRest = time.Second // without work, after which a thread ends
)

// crew does work that blocks, on a few threads of its own. Go gives a thread to
// every call that blocks and keeps it for ever, and the C library an arena of
// memory to every thread: hundreds of set-ups at once would leave both behind.
// The threads of a crew end when there is nothing to do.
type crew struct {
	jobs    chan func()
	left    chan struct{} // holds a token when somebody has left
	closing <-chan struct{}

	mu   sync.Mutex
	free int // places
}

func newCrew(n int, closing <-chan struct{}) *crew {
	return &crew{jobs: make(chan func()), left: make(chan struct{}, 1), closing: closing, free: n}
}

// do does f on a thread of the crew's and waits for it. If f panics, the error is
// a *guard.Panic.
func (c *crew) do(f func() error) error {
	done := make(chan error, 1)
	c.give(func() { done <- guard.Do(f) })
	return <-done
}

// give finds somebody for a job.
func (c *crew) give(job func()) {
	for {
		select {
		case c.jobs <- job:
			return
		default:
		}
		c.mu.Lock()
		hire := c.free > 0
		if hire {
			c.free--
		}
		c.mu.Unlock()
		if hire {
			go guard.Run(func() { c.work(job) }, func(*guard.Panic) {}) // jobs are guarded
			return
		}
		select {
		case c.jobs <- job:
			return
		case <-c.left:
		}
	}
}

// work does jobs on a thread that ends with it.
func (c *crew) work(job func()) {
	runtime.LockOSThread()
	rest := time.NewTimer(crewRest)
	defer rest.Stop()
	for job != nil {
		job()
		rest.Reset(crewRest)
		select {
		case job = <-c.jobs:
		case <-rest.C:
			job = nil
		case <-c.closing:
			job = nil
		}
	}
	c.mu.Lock()
	c.free++
	c.mu.Unlock()
	select {
	case c.left <- struct{}{}:
	default:
	}
}
