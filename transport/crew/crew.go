package crew

import (
	"runtime"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/clock"
)

// rest is how long a thread waits for work before it ends.
const rest = time.Second

// Crew is a few threads. Its methods may be called from any goroutine.
type Crew struct {
	jobs    chan func()
	left    chan struct{} // holds a token when somebody has left
	closing <-chan struct{}
	clock   clock.Clock

	mu   sync.Mutex
	free int // places
}

// New makes a crew of at most n threads, which rest no more once closing is closed.
func New(n int, clock clock.Clock, closing <-chan struct{}) *Crew {
	return &Crew{clock: clock, jobs: make(chan func()), left: make(chan struct{}, 1), closing: closing, free: n}
}

// Do does f on a thread of the crew's and waits for it. If f panics, the error is
// a *guard.Panic.
func (c *Crew) Do(f func() error) error {
	done := make(chan error, 1)
	c.give(func() { done <- guard.Do(f) })
	return <-done
}

// give finds somebody for a job.
func (c *Crew) give(job func()) {
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
func (c *Crew) work(job func()) {
	runtime.LockOSThread()
	idle := c.clock.NewTimer(rest)
	defer idle.Stop()
	for job != nil {
		job()
		idle.Reset(rest)
		select {
		case job = <-c.jobs:
		case <-idle.C:
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
