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
	askEvery   = 500 * time.Millisecond // each relay is asked for a sign of life
	silenceFor = 2 * time.Second        // it may last until those are told whose lanes go through it
)

// vigil is what is known of how long the relays have been silent that this process has asked
// for hops: those at the other ends of the hops, as each relay looks after the next one.
type vigil struct {
	watch  clock.Watch
	silent map[session]time.Duration
}

// awake begins to ask relays for signs of life, if nobody does. It is asked when the first
// hop to one stands, and goes on until none does.
func (r *Relay) awake() {
	r.mu.Lock()
	begin := !r.vigil && !r.closed
	r.vigil = r.vigil || begin
	r.mu.Unlock()
	if !begin {
		return
	}
	r.spawn(r.keepVigil, func(*guard.Panic) { // the next hop begins anew
		r.mu.Lock()
		r.vigil = false
		r.mu.Unlock()
	})
}

// keepVigil asks, and has those told who asked for hops to relays that stay silent.
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

// relayHops are the hops to relays that stand, those of a session together. With the last it
// ends the vigil and returns nil.
func (r *Relay) relayHops() []*hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	hops := slices.DeleteFunc(inOrder(r.asked, every), func(h *hop) bool { return h.silent == nil || h.answer == nil })
	r.vigil = len(hops) > 0
	return hops
}

// look asks each relay for a sign of life, and returns how long each has owed one, of the
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

// heard takes word of a silent relay further on.
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

// passOn tells who asked for a circuit of a relay that is silent.
func (c *circuit) passOn(why error) {
	_ = c.s.Send(&handshake.Silent{Circuit: c.n, Reason: reasonOf(c.s.LocalName(), why)}) // a dead session needs none
}
