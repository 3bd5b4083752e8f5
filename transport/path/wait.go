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

// Pauses between two looks for a path that is waited for, and how long what a look has not
// found counts for everybody who asks.
const (
	minPause  = 20 * time.Millisecond
	maxPause  = time.Second
	lookAgain = minPause
)

// Await is To for a connection that is being set up: while no path to the session's peer is
// found it waits for one, as a connection does that has lost its lanes. It gives up when none
// has been found for LaneWait of time in which this process ran; where nodes have been heard
// of that may relay some day for RouteWait, and for LaneWait after the last of them; and at
// once when ctx or the session ends, or the settings of the two nodes exclude one another.
func (f *Finder) Await(ctx context.Context, s *control.Session) (plan []lane.Spec, err error) {
	w := wait{
		laneWait: f.Env.Scaled(f.Env.LaneWait), routeWait: f.Env.Scaled(f.RouteWait),
		pause:      func(d time.Duration, look func()) bool { return f.waitForChange(ctx, d, look) },
		relayKnown: func() bool { return f.others(s) },
		hopeless: func(err error) bool {
			_, _, differ := f.nodes(s).differ()
			return differ || !errors.Is(err, fault.ErrUnreachable) || !s.Alive()
		},
		say: func(err error) {
			f.Env.WarnOnce("no path yet: "+s.Name(), fmt.Sprintf("a path to %s is waited for, for up to %v (NCCL_MESH_LANE_WAIT): %s", s.Name(), f.Env.LaneWait, OneLine(err)))
		},
	}
	err = w.until(func(tick func()) error {
		plan, err = f.to(ctx, s, tick)
		return err
	})
	return plan, err
}

// wait is how long paths are looked for.
type wait struct {
	laneWait, routeWait time.Duration
	relayKnown          func() bool                                  // whether a node is known that may relay some day
	hopeless            func(error) bool                             // whether another look cannot find more
	pause               func(d time.Duration, tick func()) (on bool) // calls tick often; false: the caller has given up
	say                 func(error)                                  // tells the user that there is no path yet, once that has lasted

	outage    clock.Watch
	relaySeen time.Duration // of the outage when others were known last
}

// until calls look, which calls tick often, until it returns no error or it is no use to go
// on. It returns what look did.
func (w *wait) until(look func(tick func()) error) error {
	tick := func() { w.outage.Look() }
	tick()
	for pause, said := minPause, false; ; pause = min(2*pause, maxPause) {
		err := look(tick)
		if err == nil || w.hopeless(err) || !w.more() {
			return err
		}
		if !said && w.relaySeen == 0 && w.outage.Look() >= maxPause { // else package mesh says who is missing
			w.say(err)
			said = true
		}
		if !w.pause(pause, tick) {
			return err
		}
	}
}

// more reports whether to look again.
func (w *wait) more() bool {
	spent := w.outage.Look()
	if w.relayKnown() {
		w.relaySeen = min(spent, w.routeWait)
		return spent < max(w.routeWait, w.laneWait)
	}
	return spent-w.relaySeen < w.laneWait
}

// rest waits for so long, or until a port has changed here or at a peer, and calls tick
// meanwhile. It reports false when ctx has ended.
func (f *Finder) waitForChange(ctx context.Context, d time.Duration, tick func()) bool {
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	over := f.Env.Clock.NewTimer(f.Env.Scaled(d))
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

// anew has whoever waits for a path look at once.
//
// Preconditions: f.mu is locked.
func (f *Finder) wakeWaiters() {
	close(f.changed)
	f.changed = make(chan struct{})
}
