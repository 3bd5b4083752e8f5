package conn

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// LanesToAdd returns the lanes of a plan that the connection lacks and has room for. It leaves out paths that
// the connection avoids.
func (c *Conn) LanesToAdd(plan []lane.Spec) (missing []lane.Spec) {
	if c.state.At() != Open {
		return nil // still in its first set-up, or stopped
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.pathCounts()
	for _, p := range plan {
		k := pathTo(p)
		switch {
		case have[k] > 0:
			have[k]-- // this lane exists
		case c.confined && c.target[k] == 0, c.avoids(k):
		case c.mayUse(p.Port):
			missing = append(missing, p)
		}
	}
	return missing[:min(len(missing), len(c.vacantIndices()))]
}

// Confine keeps the connection to the paths of its first plan: lanes over other paths do not join. It must be
// called before the first set-up.
func (c *Conn) Confine() {
	c.mu.Lock()
	c.confined = true
	c.mu.Unlock()
}

// pathKey identifies the path of a lane: the port here, the port at the peer, and the relays between them.
type pathKey struct {
	port  lane.Port
	peer  uint8
	route string
	tier  int
}

func pathOf(l *lane.Lane) pathKey { return pathKey{l.Port, l.Peer.Index, l.Route.String(), l.Tier} }
func pathTo(p lane.Spec) pathKey  { return pathKey{p.Port, p.Peer.Index, p.Route.String(), p.Tier} }

// pathCounts returns how many lanes in service each path has.
//
// Preconditions: c is locked.
func (c *Conn) pathCounts() map[pathKey]int {
	n := map[pathKey]int{}
	for _, l := range c.lanes {
		if l.InService() {
			n[pathOf(l)]++
		}
	}
	return n
}

// NeedsRepair reports whether a path has fewer lanes than its target, and whether no lane is in service. It
// returns false for a connection that has ended.
func (c *Conn) NeedsRepair() (lanesMissing, outage bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.At() == Closed || c.Ended() != nil {
		return false, false
	}
	now := c.pathCounts()
	for k, n := range c.target {
		lanesMissing = lanesMissing || now[k] < n
	}
	return lanesMissing, len(now) == 0
}

// vacantIndices returns the indices that joining lanes may use: those of lanes that have failed and are
// settled, and those that no lane has had.
//
// Preconditions: c is locked.
func (c *Conn) vacantIndices() (free []int) {
	for i := range lane.MaxParts {
		if c.isVacant(i) {
			free = append(free, i)
		}
	}
	return free
}

// isVacant reports whether a joining lane may use index i.
//
// Preconditions: c is locked.
func (c *Conn) isVacant(i int) bool {
	if i >= len(c.lanes) {
		return i < lane.MaxParts
	}
	return c.failover.At(uint8(i)) == failover.Vacant
}

// Join makes lanes and takes them into service, from the sender's side. Only one call at a time may be made.
func (c *Conn) Join(plan []lane.Spec) error {
	if !c.events.mayJoin(&c.joins) {
		return c.abandoned()
	}
	defer c.joins.Done()
	c.lastEpoch++
	s := newSetup(c, c.lastEpoch)
	c.joining.Store(s)
	defer c.joining.Store(nil)
	return s.c.guarded("join lanes", func() error {
		defer s.closeUnused()
		err := c.env.LanePool.Do(func() error { return s.makeJoining(plan, nil) })
		if err != nil || len(s.lanes) == 0 {
			return err
		}
		_, err = s.offer(c.joinContext, &handshake.Open{Conn: c.ID})
		return err
	})
}

// maxJoins is how many joins of the sender's a receiver handles at a time. The sender makes one at a time,
// but the next may begin before this side is done with the last.
const maxJoins = 4

// join begins to take in the lanes that a sender offers. It does not block.
func (c *Conn) join(m *handshake.Open) {
	switch {
	case c.Sending || c.Probe || m.Epoch == 0:
		c.Fail(fmt.Errorf("%w: %v: it is already set up", fault.ErrProtocol, c))
		return
	case !c.events.mayJoin(&c.joins):
		return
	case c.admits.Add(1) > maxJoins:
		c.admits.Add(-1)
		c.joins.Done()
		c.Fail(fmt.Errorf("%w: %v: %d sets of lanes are already joining", fault.ErrProtocol, c, maxJoins))
		return
	}
	s := newSetup(c, m.Epoch)
	c.joining.Store(s)
	// On a new goroutine, because Background may run the function before it returns.
	go guard.Run(func() { c.env.Background(func() { s.admit(m) }) }, c.panicked)
}

// admit takes in the lanes that a sender offers. It runs on a goroutine of its own.
func (s *setup) admit(m *handshake.Open) {
	defer s.c.joins.Done()
	defer s.c.admits.Add(-1)
	err := s.c.guarded("join lanes", func() error {
		defer s.c.joining.CompareAndSwap(s, nil)
		defer s.closeUnused()
		if s.c.joinContext.Err() != nil {
			return s.c.abandoned()
		}
		return s.answerJoin(m)
	})
	if err != nil && !errors.Is(err, ErrNoLane) {
		s.c.env.Log.Debug("lanes did not join", "conn", s.c.String(), "err", err)
	}
}

// answerJoin makes the receiver's ends of the lanes that a sender offers, and answers. Lanes that cannot be
// made are left out of the answer.
func (s *setup) answerJoin(m *handshake.Open) error {
	plan, err := s.c.env.Plan(s.c, m.Lanes)
	if err == nil {
		err = s.c.setPeerDomains(m.Base, m.Domains)
	}
	if err == nil {
		err = s.c.env.LanePool.Do(func() error { return s.makeJoining(plan, m.Lanes) })
	}
	if err != nil {
		m.Lanes = nil
	}
	_, answered := s.answer(s.c.joinContext, m)
	return errors.Join(err, answered)
}

// makeJoining makes the lanes that join. A sender, for which offered is nil, chooses the indices. A receiver
// uses those of the lanes that were offered.
func (s *setup) makeJoining(plan []lane.Spec, offered []handshake.Lane) error {
	s.openDomains(plan)
	s.c.mu.Lock()
	free := s.c.vacantIndices()
	s.c.mu.Unlock()
	for i, p := range plan[:min(len(plan), len(free))] {
		index := free[i]
		if offered != nil {
			index = int(offered[i].Index)
		}
		s.c.mu.Lock()
		d, vacant := s.c.domainOf(p.Port), s.c.isVacant(index)
		s.c.mu.Unlock()
		if !vacant || d == nil || !d.HasRoom() { // not yet
			continue
		}
		if err := s.makeLane(p, index); err != nil {
			return err
		}
	}
	return nil
}

// openDomains opens the domains that a plan needs and the connection has not, as far as the connection may
// use the ports.
func (s *setup) openDomains(plan []lane.Spec) {
	s.c.domainMu.Lock()
	defer s.c.domainMu.Unlock()
	ports, to := portsOf(plan)
	for i, p := range ports {
		s.c.mu.Lock()
		may := s.c.mayUse(p)
		s.c.mu.Unlock()
		if !may {
			continue
		}
		if err := s.c.openDomain(p, to[i]); err != nil { // its lanes do not join
			s.c.env.WarnOnce("port that cannot join: "+p.Now().String(), err.Error())
		}
	}
}

// installLanes stores the lanes that have joined in the connection and updates the state that depends on
// lanes.
//
// Preconditions: c is locked.
func (s *setup) installLanes() {
	c := s.c
	devices := false
	for _, l := range s.lanes {
		if !l.InService() {
			continue
		}
		if c.failover.Step(l.Index, l.Epoch, failover.Joined) == 0 { // the lane was made because the index was vacant
			c.Fail(fmt.Errorf("%w: %v: %v comes into service at an index whose lane is %v", fault.ErrProtocol, c, l, c.failover.At(l.Index)))
		}
		if s.epoch == 0 {
			continue
		}
		for len(c.lanes) <= int(l.Index) {
			c.lanes = append(c.lanes, emptySlotAt(l, len(c.lanes)))
		}
		was := c.lanes[l.Index]
		c.lanes[l.Index] = l
		c.hideLane(was)
		_ = c.guarded("close a lane", was.Carrier.Close) // no effect if draining has closed it, which is the rule
		l.Carried = c.maxCarried()
		c.flapRecordOf(pathOf(l)).joined(time.Now())
		c.logJoined(l, was)
		devices = devices || !l.Port.Traits().Polled
	}
	if c.neverInService && c.inService() > 0 { // if the lanes carry no keys now, lanes that need keys cannot come back
		c.neverInService = false
		maps.DeleteFunc(c.target, func(k pathKey, _ int) bool { return k.port.Traits().NoRKeys != c.traits.NoRKeys })
	}
	for k, n := range c.pathCounts() {
		c.target[k] = max(c.target[k], n)
	}
	if c.inService() > 0 {
		c.outage.Stop()
	}
	c.enqueueNoCarrier()
	if devices && c.receiver != nil {
		c.receiver.regrantForNewKeys()
	}
	c.resumePending = c.resumePending || s.epoch > 0
}

// enqueueNoCarrier queues an event for each port that has lanes in service and no carrier. Such lanes stay in
// service while there is no other, and may be drained now.
//
// Preconditions: c is locked.
func (c *Conn) enqueueNoCarrier() {
	queued := map[lane.Port]bool{}
	for _, l := range c.lanes {
		if l.InService() && l.Port.NoCarrier() && !queued[l.Port] {
			queued[l.Port] = true
			c.enqueue(event{port: l.Port})
		}
	}
}

// logJoined logs that lane l has joined at the index of lane was: it restores a path that had lost a lane,
// replaces a lost lane over another path, or is an additional lane.
//
// Preconditions: c is locked.
func (c *Conn) logJoined(l, was *lane.Lane) {
	k := pathOf(l)
	lost, restored := c.lostSince[k]
	text := "has come back after"
	switch {
	case restored:
		delete(c.lostSince, k)
	case was.DownSince.IsZero(), isFailBack(was.Why()):
		c.env.Log.Info(fmt.Sprintf("%v: %v has joined", c, l.Path()))
		return
	default:
		lost, text = was.DownSince, fmt.Sprintf("takes the place of %v after", was.Path())
	}
	away := time.Since(lost)
	c.Count.Outage.Add(uint64(away))
	c.warn("back", l, c.flapRecordOf(k).quiet(), fmt.Sprintf("%v: %v %s %v; traffic goes over %s", c, l.Path(), text, away.Round(time.Millisecond), plural(c.inService(), "lane")))
}

// maxCarried returns the most that a lane in service has carried for its weight. A lane that joins starts
// from that value, because it would get all messages otherwise.
//
// Preconditions: c is locked.
func (c *Conn) maxCarried() (most float64) {
	for _, l := range c.lanes {
		if l.InService() {
			most = max(most, l.Carried+float64(l.Bytes.Value())/l.Rate())
		}
	}
	return most
}

// closeUnused closes the lanes that did not come into service.
func (s *setup) closeUnused() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.lanes {
		if int(l.Index) < len(s.c.lanes) && s.c.lanes[l.Index] == l {
			continue
		}
		l.Deactivate()
		if err := l.Carrier.Close(); err != nil {
			s.c.env.Log.Warn("a lane that did not join did not close", "lane", l.String(), "err", err)
		}
	}
}
