package process

import (
	"sync"
	"time"

	"ncclmesh/random"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/transport/clock"
)

// A Self is what one process has of its own.
type Self struct {
	Name string
	Gate *bus.Gate // shut while the process is stopped

	bus    *bus.Bus
	source *bus.Source // of the stops
	draws  *draw.Source
	stops  int // that are not over
}

// New makes what the process of a name has of its own. No other process of the bus has the name.
func New(b *bus.Bus, draws *draw.Source, name string) *Self {
	stops := b.Source("stops of " + name)
	return &Self{Name: name, Gate: bus.NewGate(stops), source: stops, bus: b, draws: draws}
}

// Clock makes the timers of the process. It is to be called once.
func (s *Self) Clock() clock.Clock {
	return clock.New(&timers{s.bus.Source("timers of " + s.Name), s.Gate})
}

// Random makes the source of the numbers that the process draws: a stream for each thing. It is to be called once.
func (s *Self) Random() random.Source {
	var mu sync.Mutex
	streams := map[string]*draw.Stream{}
	return func(b []byte, what string) {
		mu.Lock()
		defer mu.Unlock()
		d := streams[what]
		if d == nil {
			d = s.draws.Stream(s.Name + ": " + what)
			streams[what] = d
		}
		for i := range b {
			b[i] = byte(d.Uint64())
		}
	}
}

// Halt stops the process, as SIGSTOP does, or lets it go on: while it is stopped none of its threads and goroutines does anything,
// and none of its timers fires. Its host goes on: sockets receive until they are full, and adapters carry out what was
// posted and place what arrives. Of stops that overlap the last to end counts. It is to be called within an event, or before
// the process does anything.
func (s *Self) Halt(on bool) {
	if on {
		s.stops++
		s.Gate.Shut()
		return
	}
	if s.stops--; s.stops == 0 {
		s.Gate.Open()
	}
}

// HaltAt stops the process for a time, as Halt does, or for good where d is 0, at its nth call of the system or of an adapter from now: also
// between two calls that it makes at one instant.
func (s *Self) HaltAt(n int, d time.Duration) {
	s.Gate.ShutAt(n, func() {
		s.Halt(true)
		if d > 0 {
			s.source.After(d, "goes on after a call", func() { s.Halt(false) })
		}
	})
}

// timers makes the timers of a process.
type timers struct {
	source *bus.Source
	gate   *bus.Gate
}

var _ clock.Events = (*timers)(nil)

// AfterFunc calls f by an event, or, where the process is stopped then, when it goes on.
func (t *timers) AfterFunc(d time.Duration, f func()) func() bool {
	return t.source.After(d, "timer", func() { t.gate.Pass(f) }).Stop
}
