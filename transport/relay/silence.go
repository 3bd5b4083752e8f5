package relay

import (
	"fmt"
	"slices"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
)

// Waits, before TimeScale.
const (
	askEvery   = 500 * time.Millisecond // between two checks of a relay
	silenceFor = 2 * time.Second        // after this long without a sign of life a relay is reported as stalled
)

// liveness records how long each next relay, at the other end of a hop that this process has requested, has been
// silent. Each relay checks the one after it.
type vigil struct {
	watch  clock.Watch
	silent map[session]time.Duration
}

// startLivenessChecks starts checkLiveness, if it is not running. It is called after a hop to a relay came up. The
// checks continue until no such hop is up.
func (r *Relay) awake() {
	r.mu.Lock()
	begin := !r.vigil && !r.closed
	r.vigil = r.vigil || begin
	r.mu.Unlock()
	if !begin {
		return
	}
	r.spawn(r.keepVigil, func(*guard.Panic) { // the next hop starts it again
		r.mu.Lock()
		r.vigil = false
		r.mu.Unlock()
	})
}

// checkLiveness checks the relays, and calls stalled of the hops to relays that stay silent.
func (r *Relay) keepVigil() {
	v := vigil{watch: clock.Watch{Most: r.scaled(2 * askEvery)}, silent: map[session]time.Duration{}}
	v.watch.Start()
	tick := r.cfg.Clock.NewTicker(r.scaled(askEvery))
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
		silent := v.look(hops)
		for _, h := range hops {
			if d := silent[h.s]; d >= r.scaled(silenceFor) {
				h.silent(fmt.Errorf("%s has given no sign of life for %v: its process is stopped, starved of processors, or cut off", h.s.Name(), d.Round(100*time.Millisecond)))
			}
		}
	}
}

// relayHops returns the hops to relays that are up, ordered by session. If there are none, it marks the checks as ended
// and returns nil.
func (r *Relay) relayHops() []*hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	hops := slices.DeleteFunc(inOrder(r.asked, every), func(h *hop) bool { return h.silent == nil || h.answer == nil })
	r.vigil = len(hops) > 0
	return hops
}

// check sends a request for a sign of life to each relay, and returns how long each has been silent. It counts only the
// time in which this process ran.
func (v *vigil) look(hops []*hop) map[session]time.Duration {
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

// handleStalled handles a Silent message: it reports a stalled relay further along the path.
func (r *Relay) heard(s session, m *handshake.Silent) {
	r.mu.Lock()
	h := r.asked[key{s, m.Circuit}]
	stands := h != nil && h.silent != nil && h.answer != nil
	r.mu.Unlock()
	if !stands {
		r.strange()
		return
	}
	h.silent(&saidError{m.Reason})
}

// forwardStalled reports a stalled relay to the side that requested the circuit.
func (c *circuit) passOn(why error) {
	_ = c.s.Send(&handshake.Silent{Circuit: c.n, Reason: reasonOf(c.s.LocalName(), why)}) // the error means that the session has ended
}
