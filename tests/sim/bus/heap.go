package bus

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	heapEvery = 1024      // events between two looks at the heap
	heapMost  = 256 << 20 // garbage that may gather, in bytes
)

// A heapWatch collects garbage while all goroutines but that of the bus rest. Go's own collector begins in the middle of what an
// event has caused, and has goroutines run in another order: it is off in [Run].
type heapWatch struct {
	events int
	clean  uint64 // bytes of the heap after the last collection
}

// look collects garbage when much has gathered. The other goroutines must be at rest.
func (h *heapWatch) look() {
	if h.events++; h.events%heapEvery != 0 {
		return
	}
	if heapSize() > h.clean+heapMost {
		runtime.GC()
		h.clean = heapSize()
	}
}

// heapSize is how many bytes objects take, dead ones with them.
func heapSize() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// withoutCollector stops Go's own collector, and returns what starts it again. Garbage of before is collected first.
func withoutCollector() (again func()) {
	runtime.GC()
	percent := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(percent) }
}
