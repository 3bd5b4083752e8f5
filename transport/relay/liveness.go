package relay

import (
	"fmt"
	"slices"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
)

// Waits, before scaling.
const (
	livenessInterval = 500 * time.Millisecond // between two checks of a relay
	stalledAfter     = 2 * time.Second        // after this long without a sign of life a relay is reported as stalled
)

// liveness records how long each next relay, at the other end of a hop that this process has requested, has been
// silent. Each relay checks the one after it.
type liveness struct {
	watch  clock.Watch
	silent map[session]time.Duration
}

// startLivenessChecks starts checkLiveness, if it is not running. It is called after a hop to a relay came up. The
// checks continue until no such hop is up.
func (r *Relay) startLivenessChecks() {
	r.mu.Lock()
	begin := !r.checking && !r.closed
	r.checking = r.checking || begin
	r.mu.Unlock()
	if !begin {
		return
	}
	r.spawn(r.checkLiveness, func(*guard.Panic) { // the next hop starts it again
		r.mu.Lock()
		r.checking = false
		r.mu.Unlock()
	})
}

// checkLiveness checks the relays, and calls stalled of the hops to relays that stay silent.
func (r *Relay) checkLiveness() {
	v := liveness{watch: clock.Watch{Most: r.cfg.Clock.Scaled(2 * livenessInterval)}, silent: map[session]time.Duration{}}
	v.watch.Start()
	tick := r.cfg.Clock.NewTicker(r.cfg.Clock.Scaled(livenessInterval))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		hops := r.relayHops()
		if len(hops) == 0 {
			return
		}
		silent := v.check(hops)
		for _, h := range hops {
			if d := silent[h.s]; d >= r.cfg.Clock.Scaled(stalledAfter) {
				h.stalled(fmt.Errorf("%s has given no sign of life for %v: its process is stopped, starved of processors, or cut off", h.s.Name(), d.Round(100*time.Millisecond)))
			}
		}
	}
}

// relayHops returns the hops to relays that are up, ordered by session. If there are none, it marks the checks as ended
// and returns nil.
func (r *Relay) relayHops() []*hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	hops := slices.DeleteFunc(sorted(r.requested, anyKey), func(h *hop) bool { return h.stalled == nil || h.answer == nil })
	r.checking = len(hops) > 0
	return hops
}

// check sends a request for a sign of life to each relay, and returns how long each has been silent. It counts only the
// time in which this process ran.
func (v *liveness) check(hops []*hop) map[session]time.Duration {
	before := v.watch.Ran()
	passed := v.watch.Look() - before
	was := v.silent
	v.silent = map[session]time.Duration{}
	for _, h := range hops {
		if _, looked := v.silent[h.s]; !looked {
			v.silent[h.s] = min(was[h.s]+passed, h.s.Silence())
		}
	}
	return v.silent
}

// handleStalled handles a CircuitStalled message: it reports a stalled relay further along the path.
func (r *Relay) handleStalled(s session, m *handshake.CircuitStalled) {
	r.mu.Lock()
	h := r.requested[key{s, m.Circuit}]
	up := h != nil && h.stalled != nil && h.answer != nil
	r.mu.Unlock()
	if !up {
		r.countUnknown()
		return
	}
	h.stalled(&peerError{m.Reason})
}

// forwardStalled reports a stalled relay to the side that requested the circuit.
func (c *circuit) forwardStalled(why error) {
	_ = c.s.Send(&handshake.CircuitStalled{Circuit: c.n, Reason: reasonOf(c.s.LocalName(), why)}) // the error means that the session has ended
}
