package transport

import (
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
)

// Pauses between two searches for paths to a peer, the longest pause while a connection has no lane at all, and how
// many connections add lanes at once.
const (
	minPause       = 20 * time.Millisecond
	maxPause       = 10 * time.Second
	maxOutagePause = time.Second
	maxJoins       = 16
)

// requestRepair starts the replacement of a connection's lost lanes. It does not block.
func (t *Transport) requestRepair(c *conn.Conn) {
	t.paths.Forget(c.Session) // paths that were validated before may not work now
	t.repair(c.Session)
}

// repair starts a search for paths for the connections of a session that lack lanes or could use more. It does nothing
// on the side that accepted the session, because the dialling side sends on its connections and so chooses their lanes.
// It does not block.
func (t *Transport) repair(s *control.Session) {
	if !s.Dialled() {
		return
	}
	t.mu.Lock()
	trigger, runs := t.repairing[s]
	if !runs {
		trigger = make(chan struct{}, 1)
		t.repairing[s] = trigger
	}
	select {
	case trigger <- struct{}{}:
	default:
	}
	t.mu.Unlock()
	if !runs { // on a separate goroutine, because background may run the function at once
		go guard.Run(func() { t.background(func() { t.repairAll(s, trigger) }) }, t.caught)
	}
}

// repairAll searches for paths until no connection of the session lacks lanes: at once when it receives from trigger,
// otherwise with growing pauses.
func (t *Transport) repairAll(s *control.Session, trigger chan struct{}) {
	timer := t.env.Clock.NewTimer(0)
	defer timer.Stop()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		select {
		case <-trigger:
			pause = minPause
		case <-timer.C:
		case <-t.ctx.Done():
			return
		}
		incomplete, outage := false, false
		if err := t.guarded("replace lanes", func() error { incomplete, outage = t.repairOnce(s); return nil }); err != nil {
			incomplete = true
		}
		if !incomplete && t.repairDone(s, trigger) {
			return
		}
		if outage {
			pause = min(pause, maxOutagePause)
		}
		t.paths.Forget(s)
		timer.Reset(t.env.Clock.Scaled(pause))
	}
}

// repairDone ends the repair of a session and returns true, unless another search was requested.
func (t *Transport) repairDone(s *control.Session, trigger chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(trigger) > 0 {
		return false
	}
	delete(t.repairing, s)
	return true
}

// repairOnce searches for paths once, and adds lanes over them to the connections of a session. It reports whether one
// of these still lacks lanes, and whether one has none.
func (t *Transport) repairOnce(s *control.Session) (incomplete, outage bool) {
	var sending []*conn.Conn
	for _, c := range t.connsOf(s) {
		if c.Sending && !c.Probe {
			sending = append(sending, c)
		}
	}
	if len(sending) == 0 {
		return false, false
	}
	plan, err := t.paths.To(t.ctx, s)
	if err != nil {
		t.log.Debug("no path was found for missing lanes", "peer", s.Name(), "err", err)
	}
	var all sync.WaitGroup
	places := make(chan struct{}, maxJoins)
	for _, c := range sending {
		wanted := c.LanesToAdd(plan)
		if len(wanted) == 0 {
			continue
		}
		places <- struct{}{}
		all.Add(1)
		go guard.Run(func() {
			defer func() { <-places; all.Done() }()
			if err := c.Join(wanted); err != nil {
				t.log.Debug("lanes did not join", "conn", c.String(), "err", err)
			}
		}, t.caught)
	}
	all.Wait()
	for _, c := range sending {
		c.FailBack(plan)
		needsMore, none := c.NeedsRepair()
		incomplete, outage = incomplete || needsMore, outage || none
	}
	return incomplete, outage
}
