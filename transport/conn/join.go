package conn

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// LanesToAdd are the lanes of a plan that the connection lacks and can take in. What a path
// carries already is none of them, nor are those of paths that it avoids.
func (c *Conn) LanesToAdd(plan []lane.Plan) (wanted []lane.Plan) {
	if c.state.At() != Open {
		return nil // its first lanes are being set up
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.pathCounts()
	for _, p := range plan {
		w := pathTo(p)
		switch {
		case have[w] > 0:
			have[w]-- // each serves for one
		case c.confined && c.target[w] == 0, c.avoids(w):
		case c.mayUse(p.Port):
			wanted = append(wanted, p)
		}
	}
	return wanted[:min(len(wanted), len(c.vacantIndices()))]
}

// Confine keeps a connection to the ways of its first plan: others do not join. It is called
// before those are set up.
func (c *Conn) Confine() {
	c.mu.Lock()
	c.confined = true
	c.mu.Unlock()
}

// pathKey is what a lane leads over: a port here, one at the peer, and relays.
type pathKey struct {
	port  lane.Port
	peer  uint8
	route string
	tier  int
}

func pathOf(l *lane.Lane) pathKey { return pathKey{l.Port, l.Peer.Index, l.Route.String(), l.Tier} }
func pathTo(p lane.Plan) pathKey  { return pathKey{p.Port, p.Peer.Index, p.Route.String(), p.Tier} }

// pathCounts counts the lanes in service of each way.
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

// NeedsRepair reports whether a way has fewer lanes than it had, and whether no lane is in
// service.
func (c *Conn) NeedsRepair() (lacks, dark bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.At() == Closed || c.Ended() != nil {
		return false, false
	}
	now := c.pathCounts()
	for w, n := range c.target {
		lacks = lacks || now[w] < n
	}
	return lacks, len(now) == 0
}

// vacant are the indices that lanes may have that join: of those that failed and are done
// with, and of none.
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

func (c *Conn) isVacant(i int) bool {
	if i >= len(c.lanes) {
		return i < lane.MaxParts
	}
	l := c.lanes[i]
	return !l.InService() && c.drainOf(l) == nil
}

// Join takes lanes into service that the connection wants, from the sender's side. Only
// one call at a time may be made.
func (c *Conn) Join(wanted []lane.Plan) error {
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
		err := c.env.LanePool.Do(func() error { return s.makeJoining(wanted, nil) })
		if err != nil || len(s.lanes) == 0 {
			return err
		}
		_, err = s.offer(c.joinContext, &handshake.Open{Conn: c.ID})
		return err
	})
}

// maxJoins is how many joinings a receiver may be at: one that ends may be followed by the
// next before this side is done with it.
const maxJoins = 4

// join begins to take in the lanes that a sender wants. It does not block.
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
	// On a goroutine of its own, as Background may run it at once.
	go guard.Run(func() { c.env.Background(func() { s.admit(m) }) }, c.panicked)
}

// admit takes in the lanes that a sender wants.
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

// admitted answers a sender. What this side cannot make is left out.
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

// makeJoining makes the lanes that join: at the sender with indices of its choice, at the
// receiver those that were offered.
func (s *setup) makeJoining(plan []lane.Plan, offered []handshake.Lane) error {
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

// openDomains opens those that a plan lacks, as far as the connection may use them.
func (s *setup) openDomains(plan []lane.Plan) {
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

// takeIn puts lanes that joined into their places.
//
// Preconditions: c is locked.
func (s *setup) installLanes() {
	c := s.c
	devices := false
	for _, l := range s.lanes {
		if s.epoch == 0 || !l.InService() {
			continue
		}
		for len(c.lanes) <= int(l.Index) {
			c.lanes = append(c.lanes, emptySlotAt(l, len(c.lanes)))
		}
		was := c.lanes[l.Index]
		c.lanes[l.Index] = l
		c.hideLane(was)
		_ = c.guarded("close", was.Carrier.Close) // which it is, as a rule
		l.Carried = c.maxCarried()
		c.flapRecordOf(pathOf(l)).joined(time.Now())
		c.logJoined(l, was)
		devices = devices || !l.Port.Traits().Polled
	}
	if c.neverInService && c.inService() > 0 { // if it became blind, it has lost the others for good
		c.neverInService = false
		maps.DeleteFunc(c.target, func(w pathKey, _ int) bool { return w.port.Traits().NoRKeys != c.traits.NoRKeys })
	}
	for w, n := range c.pathCounts() {
		c.target[w] = max(c.target[w], n)
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

// enqueueNoCarrier has lanes heeded whose port has no carrier: they were spared while no other
// one stood.
//
// Preconditions: c is locked.
func (c *Conn) enqueueNoCarrier() {
	told := map[lane.Port]bool{}
	for _, l := range c.lanes {
		if l.InService() && l.Port.NoCarrier() && !told[l.Port] {
			told[l.Port] = true
			c.enqueue(event{port: l.Port})
		}
	}
}

// sayJoined logs that a lane has joined, in the place of one that there was: its way is one
// that had lost a lane, or one that is taken for want of that, or in addition.
func (c *Conn) logJoined(l, was *lane.Lane) {
	w := pathOf(l)
	left, back := c.lostSince[w]
	now := "has come back after"
	switch {
	case back:
		delete(c.lostSince, w)
	case was.Left.IsZero(), isFailBack(was.Why()):
		c.env.Log.Info(fmt.Sprintf("%v: %v has joined", c, l.Path()))
		return
	default:
		left, now = was.Left, fmt.Sprintf("takes the place of %v after", was.Path())
	}
	away := time.Since(left)
	c.Count.Away.Add(uint64(away))
	c.warn("back", l, c.flapRecordOf(w).quiet(), fmt.Sprintf("%v: %v %s %v; traffic goes over %s", c, l.Path(), now, away.Round(time.Millisecond), plural(c.inService(), "lane")))
}

// carried is what a lane that joins counts as having carried for its weight: as much as
// the others, or all messages would be its turn.
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

// giveBack closes the lanes that did not come into service.
func (s *setup) closeUnused() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, l := range s.lanes {
		if int(l.Index) < len(s.c.lanes) && s.c.lanes[l.Index] == l {
			continue
		}
		l.Rest()
		if err := l.Carrier.Close(); err != nil {
			s.c.env.Log.Warn("a lane that did not join did not close", "lane", l.String(), "err", err)
		}
	}
}
