package transport

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"ncclmesh/guard"
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
	traffic func() uint64 // a number that changes when data moves
	collect func()
	caught  func(*guard.Panic)

	mu      sync.Mutex
	running bool
	dirty   bool // there was work since the last look
	over    chan struct{}
	ended   bool
}

func newTidier(traffic func() uint64, caught func(*guard.Panic)) *tidier {
	return &tidier{traffic: traffic, collect: giveBack, caught: caught, over: make(chan struct{})}
}

// worked notes that a set-up or a close has left something behind.
func (d *tidier) worked() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = true
	if !d.running && !d.ended {
		d.running = true
		go guard.Run(d.run, d.caught)
	}
}

// run collects once no data has moved and no work was done for a while, and, when
// much has gathered, between two pieces of work.
func (d *tidier) run() {
	pause := time.NewTimer(tidyAfter)
	defer pause.Stop()
	before, next := d.traffic(), tidyAfter
	clean := inUse()
	for {
		select {
		case <-d.over:
			return
		case <-pause.C:
		}
		now := d.traffic()
		moved := now != before
		before = now
		d.mu.Lock()
		worked := d.dirty
		d.dirty = false
		d.mu.Unlock()
		switch {
		case moved:
			next = min(2*next, tidyRest)
		case worked && inUse() < clean+burstGarbage:
			next = tidyAfter
		default:
			d.collect()
			if !worked && d.rest() {
				return
			}
			next, clean = tidyAfter, inUse()
		}
		pause.Reset(next)
	}
}

// rest ends the goroutine unless there was work meanwhile.
func (d *tidier) rest() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = d.dirty
	return !d.dirty
}

// close ends the goroutine, and collects what is left.
func (d *tidier) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
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
