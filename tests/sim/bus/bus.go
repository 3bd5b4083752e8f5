package bus

import (
	"cmp"
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"ncclmesh/tests/sim/draw"
)

// A Bus releases events. Its methods may be called from any goroutine of its bubble.
type Bus struct {
	draws    *draw.Source
	start    time.Time
	changed  chan struct{} // there is a new first event
	stop     chan struct{}
	stopped  chan struct{}
	trace    trace         // written by the goroutine of the bus alone
	released *atomic.Int64 // events so far, for who watches from outside; nil: nobody does
	peace    peace         // its

	mu    sync.Mutex
	queue queue
	last  time.Duration // when the last event was released
}

// New starts a bus in the bubble of the caller. Close ends it.
func New(draws *draw.Source) *Bus {
	b := &Bus{draws: draws, start: time.Now(), last: -1,
		changed: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	b.trace.begin(draws.Seed())
	go b.run()
	return b
}

// Close ends the bus and drops the events that were not released. A goroutine in [Source.Sleep] must not be left.
func (b *Bus) Close() {
	close(b.stop)
	<-b.stopped
}

// Seed is the seed of the draws.
func (b *Bus) Seed() uint64 { return b.draws.Seed() }

// Now is the virtual time since New.
func (b *Bus) Now() time.Duration { return time.Since(b.start) }

// run releases events until Close.
func (b *Bus) run() {
	defer close(b.stopped)
	for {
		if !b.await() {
			return
		}
		synctest.Wait() // what is due at this instant has been done, and has asked for what it asks for
		b.peace.rest()
		if e := b.pop(); e != nil {
			b.trace.add(e)
			if b.released != nil {
				b.released.Add(1)
			}
			e.f()
		}
	}
}

// await waits until an event is due, and reports whether the bus goes on. It does not where an event is due just when it ends.
func (b *Bus) await() bool {
	for {
		select {
		case <-b.stop:
			return false
		default:
		}
		timer := b.timer()
		select {
		case <-timer.C:
			select {
			case <-b.stop:
				return false
			default:
				return true
			}
		case <-b.changed:
			timer.Stop()
		case <-b.stop:
			timer.Stop()
			return false
		}
	}
}

// timer returns a timer for the first event. Without an event it is one that never fires: where nothing else is to come
// either, synctest finds the deadlock.
func (b *Bus) timer() *time.Timer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 {
		return time.NewTimer(b.due(b.queue[0]) - b.Now())
	}
	never := time.NewTimer(0)
	never.Stop()
	return never
}

// due is when an event is to be released: at its time, and after the event before it.
// Preconditions: b.mu is locked.
func (b *Bus) due(e *Event) time.Duration { return max(e.at, b.last+1) }

// pop takes the first event off the queue if it is due.
func (b *Bus) pop() *Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now()
	if len(b.queue) == 0 || b.due(b.queue[0]) > now {
		return nil
	}
	e := heap.Pop(&b.queue).(*Event)
	e.at, b.last = now, now
	return e
}

// Source returns a source of events. The name stands for it in the trace, decides the order of events of one instant, and
// keys its draws; it panics when the bus has a source of that name.
func (b *Bus) Source(name string) *Source {
	return &Source{Stream: b.draws.Stream(name), bus: b, name: name}
}

// A Source is something that acts by itself: a direction of a cable, a queue pair, a thread. One goroutine uses it at a
// time, or several that a mutex orders the same way on every run.
type Source struct {
	*draw.Stream
	bus  *Bus
	name string
	n    uint64 // events asked for; guarded by bus.mu
}

// Name is the name that the source was made with.
func (s *Source) Name() string { return s.name }

// Bus is the bus that the source belongs to.
func (s *Source) Bus() *Bus { return s.bus }

// After asks for f to be called in d of virtual time; a negative d counts as 0. What names the event in the trace.
func (s *Source) After(d time.Duration, what string, f func()) *Event {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	s.n++
	now := b.Now()
	e := &Event{bus: b, at: now + min(max(d, 0), math.MaxInt64-now), source: s.name, n: s.n, what: what, f: f}
	heap.Push(&b.queue, e)
	if b.queue[0] == e {
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
	return e
}

// Sleep waits for d of virtual time. With 0 it waits until all other goroutines have come to rest.
func (s *Source) Sleep(d time.Duration) {
	woken := make(chan struct{})
	s.After(d, "wake", func() { close(woken) })
	<-woken
}

// An Event is something that is going to happen.
type Event struct {
	bus    *Bus
	at     time.Duration
	source string
	n      uint64 // in its source
	what   string
	f      func()
	index  int // in the queue; -1 once it is not there
}

// Stop takes the event back, and reports whether it had not been released.
func (e *Event) Stop() bool {
	e.bus.mu.Lock()
	defer e.bus.mu.Unlock()
	if e.index < 0 {
		return false
	}
	heap.Remove(&e.bus.queue, e.index)
	return true
}

// queue is a heap of events; the first is the next.
type queue []*Event

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.source, b.source), cmp.Compare(a.n, b.n)) < 0
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	e := x.(*Event)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.index = -1
	return e
}
