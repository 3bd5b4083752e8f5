package path

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ncclmesh/transport/clock"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// minPause and maxPause limit the pause between two searches for a path. The result of a failed search is
// returned to all callers for lookAgain.
const (
	minPause  = 20 * time.Millisecond
	maxPause  = time.Second
	lookAgain = minPause
)

// Await is To for a connection that is being set up. It repeats the search until there is a path. It gives up
// when it has found none for LaneWait, of which only the time counts in which this process was running. While
// nodes are known that may become relays it goes on for RouteWait, and for LaneWait after the last of them has
// gone. It gives up at once if ctx or the session ends, or if the settings of the two nodes exclude each other.
func (f *Finder) Await(ctx context.Context, s *control.Session) (plan []lane.Spec, err error) {
	w := wait{
		laneWait: f.Env.Clock.Scaled(f.Env.LaneWait), routeWait: f.Env.Clock.Scaled(f.RouteWait),
		pause:      func(d time.Duration, look func()) bool { return f.waitForChange(ctx, d, look) },
		relayKnown: func() bool { return f.others(s) },
		hopeless: func(err error) bool {
			_, _, differ := f.nodes(s).differ()
			return differ || !errors.Is(err, fault.ErrUnreachable) || !s.Alive()
		},
		say: func(err error) {
			f.Env.WarnOnce("no path yet: "+s.Name(), fmt.Sprintf("a path to %s is waited for, for up to %v (NCCL_MESH_LANE_WAIT): %s", s.Name(), f.Env.LaneWait, fault.OneLine(err)))
		},
	}
	err = w.until(func(tick func()) error {
		plan, err = f.to(ctx, s, tick)
		return err
	})
	return plan, err
}

// wait repeats a search for paths.
type wait struct {
	laneWait, routeWait time.Duration
	relayKnown          func() bool                                  // whether a node is known that may become a relay
	hopeless            func(error) bool                             // whether another search cannot succeed
	pause               func(d time.Duration, tick func()) (on bool) // waits, and calls tick often; false: the caller has given up
	say                 func(error)                                  // warns the user that there is no path yet

	outage    clock.Watch
	relaySeen time.Duration // length of the outage when a possible relay was last known
}

// until calls look until it succeeds or a further attempt is useless, and returns its last result. look has to
// call tick often.
func (w *wait) until(look func(tick func()) error) error {
	tick := func() { w.outage.Look() }
	tick()
	for pause, said := minPause, false; ; pause = min(2*pause, maxPause) {
		err := look(tick)
		if err == nil || w.hopeless(err) || !w.more() {
			return err
		}
		if !said && w.relaySeen == 0 && w.outage.Look() >= maxPause { // after a relay was possible only the final error names what is missing
			w.say(err)
			said = true
		}
		if !w.pause(pause, tick) {
			return err
		}
	}
}

// more reports whether to search again.
func (w *wait) more() bool {
	spent := w.outage.Look()
	if w.relayKnown() {
		w.relaySeen = min(spent, w.routeWait)
		return spent < max(w.routeWait, w.laneWait)
	}
	return spent-w.relaySeen < w.laneWait
}

// waitForChange waits for d, or until a port of this node or of a peer has changed, and calls tick meanwhile.
// It returns false if ctx has ended.
func (f *Finder) waitForChange(ctx context.Context, d time.Duration, tick func()) bool {
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	over := f.Env.Clock.NewTimer(f.Env.Clock.Scaled(d))
	defer over.Stop()
	ticker := f.Env.Clock.NewTicker(clock.LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-over.C:
			return true
		case <-changed:
			return true
		case <-ticker.C:
			tick()
		case <-ctx.Done():
			return false
		}
	}
}

// wakeWaiters makes all waiting callers search again at once.
//
// Preconditions: f.mu is locked.
func (f *Finder) wakeWaiters() {
	close(f.changed)
	f.changed = make(chan struct{})
}
