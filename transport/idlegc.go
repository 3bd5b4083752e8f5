package transport

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/clock"
)

const (
	// idleBefore is how long no data must have moved before memory is collected.
	idleBefore = 500 * time.Millisecond
	// maxTick is the longest pause between two checks while data moves.
	maxTick = 2 * time.Second
	// burstGarbage is how many bytes of garbage may accumulate while connections are opened and closed without a pause.
	burstGarbage = 16 << 20
	// keptThreads is how many threads the Go runtime keeps after a burst.
	keptThreads = 16
)

// idleGC collects the garbage of set-ups and closes. It is needed because the garbage collector does not run by itself
// inside NCCL's process, where a collection would delay traffic. Its goroutine runs from the first work until the
// collection after the last work.
type idleGC struct {
	clock   clock.Clock
	traffic func() uint64 // returns a number that changes when data moves
	collect func()        // nil: no collection
	caught  func(*guard.Panic)

	done, wake chan struct{}

	mu       sync.Mutex // guards the fields below
	running  bool
	last     time.Time // time of the last work
	slowTick bool      // the next check is late: new work must wake the goroutine
	closed   bool
}

func newIdleGC(clock clock.Clock, traffic func() uint64, collect func(), caught func(*guard.Panic)) *idleGC {
	return &idleGC{clock: clock, traffic: traffic, collect: collect, caught: caught, done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// noteWork records that a set-up or a close has left garbage.
func (d *idleGC) noteWork() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
	switch {
	case d.closed, d.collect == nil:
	case !d.running:
		d.running = true
		go guard.Run(d.run, d.caught)
	case d.slowTick:
		d.slowTick = false
		select {
		case d.wake <- struct{}{}:
		default: // a wake-up is already pending
		}
	}
}

// run collects garbage after no data has moved and no work was done for idleBefore. If much garbage has accumulated, it
// collects between two pieces of work. While data moves it checks less and less often, until new work arrives, because
// a job ends with work.
func (d *idleGC) run() {
	pause := d.clock.NewTimer(idleBefore)
	defer pause.Stop()
	before, next := d.traffic(), idleBefore
	clean := inUse()
	for {
		select {
		case <-d.done:
			return
		case <-d.wake:
			before, next = d.traffic(), idleBefore
			pause.Reset(next)
			continue
		case <-pause.C:
		}
		now := d.traffic()
		moved := now != before
		before = now
		switch rested := d.idleFor(); {
		case moved:
			next = min(max(2*next, idleBefore), maxTick)
		case rested < idleBefore && inUse() < clean+burstGarbage:
			next = idleBefore - rested
		default:
			began := time.Now()
			d.collect()
			if d.stopIfIdle(began) {
				return
			}
			next, clean = idleBefore, inUse()
		}
		d.setTick(next)
		pause.Reset(next)
	}
}

// idleFor returns how long there has been no work.
func (d *idleGC) idleFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.last)
}

// setTick records the pause until the next check.
func (d *idleGC) setTick(next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slowTick = next > idleBefore
}

// stopIfIdle marks the goroutine as ended and returns true, unless there was work shortly before the collection began
// or since.
func (d *idleGC) stopIfIdle(began time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = began.Sub(d.last) < idleBefore
	return !d.running
}

// close ends the goroutine, and starts a last collection.
func (d *idleGC) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed && d.collect != nil {
		d.closed = true
		close(d.done)
		go guard.Run(d.collect, d.caught)
	}
}

// freeMemory runs the garbage collector, twice because pooled objects survive the first collection, and returns free
// memory and surplus threads to the system. During a burst the runtime starts a thread for each system call that
// blocks, and none of these ends by itself. A thread ends when a goroutine that is locked to it ends.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
	for range max(0, int(measure("/sched/threads/total:threads"))-keptThreads) {
		go guard.Run(runtime.LockOSThread, func(*guard.Panic) {})
	}
}

// inUse returns the size of the objects on the heap, including dead ones, in bytes. The measurement does not stop the
// world.
func inUse() uint64 { return measure("/memory/classes/heap/objects:bytes") }

func measure(what string) uint64 {
	sample := []metrics.Sample{{Name: what}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
