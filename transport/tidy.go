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
	// tidyAfter is how long nothing must have moved before memory is collected.
	tidyAfter = 500 * time.Millisecond
	// tidyRest is the longest pause between two looks while data moves.
	tidyRest = 2 * time.Second
	// burstGarbage is how much may gather while connections come and go without
	// a pause.
	burstGarbage = 16 << 20
	// keptThreads is how many threads Go's runtime keeps after a burst.
	keptThreads = 16
)

// tidier collects what set-ups and closes leave behind, as the garbage collector
// does not run by itself inside NCCL's process: a collection beside traffic would
// hold it up. It runs a goroutine from the first work to the collection after the
// last, and none otherwise.
type tidier struct {
	clock   clock.Clock
	traffic func() uint64 // a number that changes when data moves
	collect func()        // nil: nothing is collected
	caught  func(*guard.Panic)

	over, wake chan struct{}

	mu      sync.Mutex // guards what follows
	running bool
	last    time.Time // when there was work
	drowsy  bool      // the next look is late, and work must wake for an earlier one
	ended   bool
}

func newTidier(clock clock.Clock, traffic func() uint64, collect func(), caught func(*guard.Panic)) *tidier {
	return &tidier{clock: clock, traffic: traffic, collect: collect, caught: caught, over: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// worked notes that a set-up or a close has left something behind.
func (d *tidier) worked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
	switch {
	case d.ended, d.collect == nil:
	case !d.running:
		d.running = true
		go guard.Run(d.run, d.caught)
	case d.drowsy:
		d.drowsy = false
		select {
		case d.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// run collects once no data has moved and no work was done for a while, and, when
// much has gathered, between two pieces of work. While data moves it looks ever less often,
// but for the work that a job ends with.
func (d *tidier) run() {
	pause := d.clock.NewTimer(tidyAfter)
	defer pause.Stop()
	before, next := d.traffic(), tidyAfter
	clean := inUse()
	for {
		select {
		case <-d.over:
			return
		case <-d.wake:
			before, next = d.traffic(), tidyAfter
			pause.Reset(next)
			continue
		case <-pause.C:
		}
		now := d.traffic()
		moved := now != before
		before = now
		switch rested := d.rested(); {
		case moved:
			next = min(max(2*next, tidyAfter), tidyRest)
		case rested < tidyAfter && inUse() < clean+burstGarbage:
			next = tidyAfter - rested
		default:
			began := time.Now()
			d.collect()
			if d.rest(began) {
				return
			}
			next, clean = tidyAfter, inUse()
		}
		d.sleep(next)
		pause.Reset(next)
	}
}

// rested is how long there has been no work.
func (d *tidier) rested() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.last)
}

// sleep notes that the next look is so far off.
func (d *tidier) sleep(next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drowsy = next > tidyAfter
}

// rest ends the goroutine unless there was work lately, or since the collection began.
func (d *tidier) rest(began time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = began.Sub(d.last) < tidyAfter
	return !d.running
}

// close ends the goroutine, and collects what is left.
func (d *tidier) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended && d.collect != nil {
		d.ended = true
		close(d.over)
		go guard.Run(d.collect, d.caught)
	}
}

// giveBack collects, twice, as what is pooled survives one collection, and returns free memory and threads to the system. A burst
// has the runtime start a thread for each system call that the kernel made wait,
// and none ends by itself; one to which an ending goroutine is locked does.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
	for range max(0, int(measure("/sched/threads/total:threads"))-keptThreads) {
		go guard.Run(runtime.LockOSThread, func(*guard.Panic) {})
	}
}

// inUse is the size of the heap's objects, dead ones with them. To measure it does
// not stop the world.
func inUse() uint64 { return measure("/memory/classes/heap/objects:bytes") }

func measure(what string) uint64 {
	sample := []metrics.Sample{{Name: what}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
