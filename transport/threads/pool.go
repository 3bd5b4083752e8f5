package threads

import (
	"runtime"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/clock"
)

// idleTimeout is how long a thread waits for a task before it ends.
const idleTimeout = time.Second

// Pool is a limited number of threads. Its methods may be called from any goroutine.
type Pool struct {
	tasks   chan func()
	ended   chan struct{} // holds a token after a thread has ended
	closing <-chan struct{}
	clock   clock.Clock

	mu        sync.Mutex
	available int // number of threads that may still be started
}

// New makes a pool of at most n threads. After closing is closed, a thread without a task ends without waiting.
func New(n int, clock clock.Clock, closing <-chan struct{}) *Pool {
	return &Pool{clock: clock, tasks: make(chan func()), ended: make(chan struct{}, 1), closing: closing, available: n}
}

// Do runs f on a thread of the pool, and returns its error when it is done. If f panics, the error is a *guard.Panic.
func (p *Pool) Do(f func() error) error {
	done := make(chan error, 1)
	p.submit(func() { done <- guard.Do(f) })
	return <-done
}

// submit passes a task to an idle thread, to a new thread, or to the next thread that is free.
func (p *Pool) submit(task func()) {
	for {
		select {
		case p.tasks <- task:
			return
		default:
		}
		p.mu.Lock()
		start := p.available > 0
		if start {
			p.available--
		}
		p.mu.Unlock()
		if start {
			go guard.Run(func() { p.run(task) }, func(*guard.Panic) {}) // tasks catch their own panics
			return
		}
		select {
		case p.tasks <- task:
			return
		case <-p.ended:
		}
	}
}

// run runs tasks on a locked thread, which ends with this goroutine.
func (p *Pool) run(task func()) {
	runtime.LockOSThread()
	idle := p.clock.NewTimer(idleTimeout)
	defer idle.Stop()
	for task != nil {
		task()
		idle.Reset(idleTimeout)
		select {
		case task = <-p.tasks:
		case <-idle.C:
			task = nil
		case <-p.closing:
			task = nil
		}
	}
	p.mu.Lock()
	p.available++
	p.mu.Unlock()
	select {
	case p.ended <- struct{}{}:
	default:
	}
}
