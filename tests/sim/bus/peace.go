package bus

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// peace keeps Go's scheduler from taking the processor from a goroutine before it waits: from one that has had it for 10 ms,
// or for a collection. Others would run first then that otherwise run later, and the history would be another. Where a machine is
// busy that cannot be helped, but noticed.
type peace struct {
	rested    time.Duration // when all goroutines were at rest last, in real time
	disturbed bool
	rests     int
	heap      []metrics.Sample
}

const (
	slice       = 8 * time.Millisecond // below that of Go's scheduler
	collectMore = 1024                 // events between two looks at the heap
	collectAt   = 256 << 20            // bytes in the heap
)

// rest begins a new slice of time, and collects garbage where there is much. All other goroutines are at rest.
func (p *peace) rest() {
	now := realTime()
	p.disturbed = p.disturbed || p.rested != 0 && now-p.rested > slice
	if p.rests++; p.rests%collectMore == 0 {
		p.collect()
	}
	runtime.Gosched()
	p.rested = realTime()
}

// collect collects garbage where there may be much.
func (p *peace) collect() {
	if p.heap == nil {
		p.heap = []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	}
	if metrics.Read(p.heap); p.heap[0].Value.Uint64() > collectAt {
		runtime.GC()
	}
}
