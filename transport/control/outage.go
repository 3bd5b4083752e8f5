package control

import (
	"context"
	"sync"
	"time"

	"ncclmesh/transport/clock"
)

// An outage measures how long a session has been without a link while this process was running. The time while the
// process was stopped does not count, because the peer may be alive although all deadlines have passed.
type outage struct {
	mu    sync.Mutex // a leaf
	watch clock.Watch
}

// newOutage returns an outage that begins now and is measured until ctx ends.
func (e *Endpoint) newOutage(ctx context.Context) *outage {
	every := e.cfg.Clock.Scaled(clock.LookEvery)
	o := &outage{watch: clock.Watch{Most: 2 * every}}
	o.watch.Start()
	e.spawn(func() { // spawn starts nothing if the endpoint is closed: then no goroutine uses the outage
		tick := e.cfg.Clock.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				o.duration()
			case <-ctx.Done():
				return
			}
		}
	})
	return o
}

// duration returns how long the outage has lasted so far.
func (o *outage) duration() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.watch.Look()
}

// restart makes the outage begin now.
func (o *outage) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watch.Look()
	o.watch.Reset()
}
