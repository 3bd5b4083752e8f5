package crew

import (
	"runtime"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/clock"
)

// idleTimeout is how long a thread waits for a task before it ends.
const rest = time.Second

// Pool is a limited number of threads. Its methods may be called from any goroutine.
type Crew struct {
	jobs    chan func()
	left    chan struct{} // holds a token after a thread has ended
	closing <-chan struct{}
	clock   clock.Clock

	mu   sync.Mutex
	free int // number of threads that may still be started
}

// New makes a pool of at most n threads. After closing is closed, a thread without a task ends without waiting.
func New(n int, clock clock.Clock, closing <-chan struct{}) *Crew {
	return &Crew{clock: clock, jobs: make(chan func()), left: make(chan struct{}, 1), closing: closing, free: n}
}

// Do runs f on a thread of the pool, and returns its error when it is done. If f panics, the error is a *guard.Panic.
func (c *Crew) Do(f func() error) error {
	done := make(chan error, 1)
	c.give(func() { done <- guard.Do(f) })
	return <-done
}

// submit passes a task to an idle thread, to a new thread, or to the next thread that is free.
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
			go guard.Run(func() { c.work(job) }, func(*guard.Panic) {}) // tasks catch their own panics
			return
		}
		select {
		case c.jobs <- job:
			return
		case <-c.left:
		}
	}
}

// run runs tasks on a locked thread, which ends with this goroutine.
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
