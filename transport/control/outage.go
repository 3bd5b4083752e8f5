package control

import (
	"context"
	"sync"
	"time"

	"ncclmesh/transport/clock"
)

// An outage measures for how long a session has been without a link while this process ran. A process that was stopped finds
// all its deadlines passed when it goes on, although its peer may be there.
type outage struct {
	mu    sync.Mutex // a leaf
	watch clock.Watch
}

// newOutage returns one that measures until ctx ends.
func (e *Endpoint) newOutage(ctx context.Context) *outage {
	every := e.scaled(clock.LookEvery)
	o := &outage{watch: clock.Watch{Most: 2 * every}}
	o.watch.Start()
	e.spawn(func() { // a closed endpoint starts nothing: then nobody waits for the outage to end
		tick := e.cfg.Clock.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				o.lasts()
			case <-ctx.Done():
				return
			}
		}
	})
	return o
}

// lasts returns how long the outage has lasted so far.
func (o *outage) lasts() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.watch.Look()
}

// again makes the outage begin now.
func (o *outage) again() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watch.Look()
	o.watch.Reset()
}
