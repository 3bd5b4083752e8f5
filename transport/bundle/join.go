package bundle

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

// Wants are the lanes of a plan that the connection lacks and can take in. What a path
// carries already is none of them, nor are those of paths that it avoids.
func (b *Bundle) Wants(plan []lane.Plan) (wanted []lane.Plan) {
	if !b.serves() {
		return nil // its first lanes are being set up
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.ways()
	for _, p := range plan {
		w := wayTo(p)
		switch {
		case have[w] > 0:
			have[w]-- // each serves for one
		case b.confined && b.most[w] == 0, b.avoids(w):
		case b.mayUse(p.Port):
			wanted = append(wanted, p)
		}
	}
	return wanted[:min(len(wanted), len(b.vacant()))]
}

// Confine keeps a connection to the ways of its first plan: others do not join. It is called
// before those are set up.
func (b *Bundle) Confine() {
	b.mu.Lock()
	b.confined = true
	b.mu.Unlock()
}

// way is what a lane leads over: a port here, one at the peer, and relays.
type way struct {
	port  lane.Port
	peer  uint8
	route string
	tier  int
}

func wayOf(l *lane.Lane) way { return way{l.Port, l.Peer.Index, l.Route.String(), l.Tier} }
func wayTo(p lane.Plan) way  { return way{p.Port, p.Peer.Index, p.Route.String(), p.Tier} }

// ways counts the lanes in service of each way.
//
// Preconditions: b is locked.
func (b *Bundle) ways() map[way]int {
	n := map[way]int{}
	for _, l := range b.lanes {
		if l.InService() {
			n[wayOf(l)]++
		}
	}
	return n
}

// Lacking reports whether a way has fewer lanes than it had, and whether no lane is in
// service.
func (b *Bundle) Lacking() (lacks, dark bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.Ended() != nil {
		return false, false
	}
	now := b.ways()
	for w, n := range b.most {
		lacks = lacks || now[w] < n
	}
	return lacks, len(now) == 0
}

// vacant are the indices that lanes may have that join: of those that failed and are done
// with, and of none.
//
// Preconditions: b is locked.
func (b *Bundle) vacant() (free []int) {
	for i := range lane.MaxParts {
		if b.isVacant(i) {
			free = append(free, i)
		}
	}
	return free
}

func (b *Bundle) isVacant(i int) bool {
	if i >= len(b.lanes) {
		return i < lane.MaxParts
	}
	l := b.lanes[i]
	return !l.InService() && b.leavingOf(l) == nil
}

// Join takes lanes into service that the connection wants, from the sender's side. Only
// one call at a time may be made.
func (b *Bundle) Join(wanted []lane.Plan) error {
	if !b.heed.mayJoin(&b.joins) {
		return b.abandoned()
	}
	defer b.joins.Done()
	b.last++
	s := newSetup(b, b.last)
	b.joining.Store(s)
	defer b.joining.Store(nil)
	return s.b.guarded("join lanes", func() error {
		defer s.giveBack()
		err := b.env.Making.Do(func() error { return s.makeJoining(wanted, nil) })
		if err != nil || len(s.own) == 0 {
			return err
		}
		_, err = s.offer(b.life, &handshake.Open{Conn: b.ID})
		return err
	})
}

// maxJoins is how many joinings a receiver may be at: one that ends may be followed by the
// next before this side is done with it.
const maxJoins = 4

// join begins to take in the lanes that a sender wants. It does not block.
func (b *Bundle) join(m *handshake.Open) {
	switch {
	case b.Sending || b.Trial || m.Epoch == 0:
		b.Fail(fmt.Errorf("%w: %v: it is already set up", fault.ErrProtocol, b))
		return
	case !b.heed.mayJoin(&b.joins):
		return
	case b.admits.Add(1) > maxJoins:
		b.admits.Add(-1)
		b.joins.Done()
		b.Fail(fmt.Errorf("%w: %v: %d sets of lanes are already joining", fault.ErrProtocol, b, maxJoins))
		return
	}
	s := newSetup(b, m.Epoch)
	b.joining.Store(s)
	// On a goroutine of its own, as Background may run it at once.
	go guard.Run(func() { b.env.Background(func() { s.admit(m) }) }, b.panicked)
}

// admit takes in the lanes that a sender wants.
func (s *setup) admit(m *handshake.Open) {
	defer s.b.joins.Done()
	defer s.b.admits.Add(-1)
	err := s.b.guarded("join lanes", func() error {
		defer s.b.joining.CompareAndSwap(s, nil)
		defer s.giveBack()
		if s.b.life.Err() != nil {
			return s.b.abandoned()
		}
		return s.admitted(m)
	})
	if err != nil && !errors.Is(err, ErrNoLane) {
		s.b.env.Log.Debug("lanes did not join", "conn", s.b.String(), "err", err)
	}
}

// admitted answers a sender. What this side cannot make is left out.
func (s *setup) admitted(m *handshake.Open) error {
	plan, err := s.b.env.Plan(s.b, m.Lanes)
	if err == nil {
		err = s.b.adopt(m.Base, m.Domains)
	}
	if err == nil {
		err = s.b.env.Making.Do(func() error { return s.makeJoining(plan, m.Lanes) })
	}
	if err != nil {
		m.Lanes = nil
	}
	_, answered := s.answer(s.b.life, m)
	return errors.Join(err, answered)
}

// makeJoining makes the lanes that join: at the sender with indices of its choice, at the
// receiver those that were offered.
func (s *setup) makeJoining(plan []lane.Plan, offered []handshake.Lane) error {
	s.openDomains(plan)
	s.b.mu.Lock()
	free := s.b.vacant()
	s.b.mu.Unlock()
	for i, p := range plan[:min(len(plan), len(free))] {
		index := free[i]
		if offered != nil {
			index = int(offered[i].Index)
		}
		s.b.mu.Lock()
		d, vacant := s.b.domainOf(p.Port), s.b.isVacant(index)
		s.b.mu.Unlock()
		if !vacant || d == nil || !d.HasRoom() { // not yet
			continue
		}
		if err := s.make(p, index); err != nil {
			return err
		}
	}
	return nil
}

// openDomains opens those that a plan lacks, as far as the connection may use them.
func (s *setup) openDomains(plan []lane.Plan) {
	s.b.growing.Lock()
	defer s.b.growing.Unlock()
	ports, to := uses(plan)
	for i, p := range ports {
		s.b.mu.Lock()
		may := s.b.mayUse(p)
		s.b.mu.Unlock()
		if !may {
			continue
		}
		if err := s.b.openDomain(p, to[i]); err != nil { // its lanes do not join
			s.b.env.WarnOnce("port that cannot join: "+p.Now().String(), err.Error())
		}
	}
}

// takeIn puts lanes that joined into their places.
//
// Preconditions: b is locked.
func (s *setup) takeIn() {
	b := s.b
	devices := false
	for _, l := range s.own {
		if s.epoch == 0 || !l.InService() {
			continue
		}
		for len(b.lanes) <= int(l.Index) {
			b.lanes = append(b.lanes, absentBefore(l, len(b.lanes)))
		}
		was := b.lanes[l.Index]
		b.lanes[l.Index] = l
		b.hideLane(was)
		_ = b.guarded("close", was.Carrier.Close) // which it is, as a rule
		l.Carried = b.carried()
		b.flapsOf(wayOf(l)).joined(time.Now())
		b.sayJoined(l, was)
		devices = devices || !l.Port.Traits().Passive
	}
	if b.unused && b.inService() > 0 { // if it became blind, it has lost the others for good
		b.unused = false
		maps.DeleteFunc(b.most, func(w way, _ int) bool { return w.port.Traits().Blind != b.traits.Blind })
	}
	for w, n := range b.ways() {
		b.most[w] = max(b.most[w], n)
	}
	if b.inService() > 0 {
		b.outage.Stop()
	}
	b.tellOfDark()
	if devices {
		b.half.Widened()
	}
	b.owing = b.owing || s.epoch > 0
}

// tellOfDark has lanes heeded whose port has no carrier: they were spared while no other
// one stood.
//
// Preconditions: b is locked.
func (b *Bundle) tellOfDark() {
	told := map[lane.Port]bool{}
	for _, l := range b.lanes {
		if l.InService() && l.Port.Dark() && !told[l.Port] {
			told[l.Port] = true
			b.tell(news{port: l.Port})
		}
	}
}

// sayJoined logs that a lane has joined, in the place of one that there was: its way is one
// that had lost a lane, or one that is taken for want of that, or in addition.
func (b *Bundle) sayJoined(l, was *lane.Lane) {
	w := wayOf(l)
	left, back := b.gone[w]
	now := "has come back after"
	switch {
	case back:
		delete(b.gone, w)
	case was.Left.IsZero(), isBetter(was.Why()):
		b.env.Log.Info(fmt.Sprintf("%v: %v has joined", b, l.Way()))
		return
	default:
		left, now = was.Left, fmt.Sprintf("takes the place of %v after", was.Way())
	}
	away := time.Since(left)
	b.Count.Away.Add(uint64(away))
	b.warn("back", l, b.flapsOf(w).quiet(), fmt.Sprintf("%v: %v %s %v; traffic goes over %s", b, l.Way(), now, away.Round(time.Millisecond), count(b.inService(), "lane")))
}

// carried is what a lane that joins counts as having carried for its weight: as much as
// the others, or all messages would be its turn.
//
// Preconditions: b is locked.
func (b *Bundle) carried() (most float64) {
	for _, l := range b.lanes {
		if l.InService() {
			most = max(most, l.Carried+float64(l.Bytes.Value())/l.Rate())
		}
	}
	return most
}

// giveBack closes the lanes that did not come into service.
func (s *setup) giveBack() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for _, l := range s.own {
		if int(l.Index) < len(s.b.lanes) && s.b.lanes[l.Index] == l {
			continue
		}
		l.Rest()
		if err := l.Carrier.Close(); err != nil {
			s.b.env.Log.Warn("a lane that did not join did not close", "lane", l.String(), "err", err)
		}
	}
}
