package conn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// draining is a lane that has failed, on its way out of a connection that lives on:
//
//   - its half here is stopped, and comes to rest: what had arrived is found;
//   - the peer is told, and so is this side of the peer's half: nothing is under way;
//   - the receiver reports what has arrived, and grants again what went over the lane;
//   - the sender, once it has the report, sends the rest again.
//
// Then its half is given back. The order is what keeps late writes from memory that was
// given back, or granted again.
type draining struct {
	*lane.Lane
	since       time.Time         // when its half was stopped
	drained     bool              // its half has come to rest, and the peer was told
	peerDrained bool              // so has the peer's
	report      *handshake.Report // the receiver's
}

// startDrain takes a lane out of service, if it is not on its way out already.
//
// Preconditions: c is locked.
func (c *Conn) startDrain(l *lane.Lane, err error) *draining {
	if v := c.drainOf(l); v != nil {
		return v
	}
	l.Fail(err)
	c.countDrain(l, !isFailBack(err))
	delete(c.suspected, l)
	if l.Parts.Value() > 0 && (!c.Sending || l.Backlog < int64(l.Bytes.Value())) {
		c.outage.Reset() // it was of use
	}
	v := &draining{Lane: l, since: time.Now()}
	c.drains = append(c.drains, v)
	c.redial(l, err)
	f, text := c.flapRecordOf(pathOf(l)), err.Error()
	flap := false
	if !isFailBack(err) {
		c.lostSince[pathOf(l)] = v.since
		if flap = f.failed(v.since, c.env.TimeScale); flap {
			text += "; " + f.text(v.since, c.env.TimeScale)
		}
	}
	left := c.inService()
	switch {
	case c.closedCleanly():
	case isFailBack(err):
		c.env.Log.Info(err.Error())
	case left == 0:
		c.warn("left", l, !flap && f.quiet(), c.outageText(text))
	default:
		c.warn("left", l, !flap && f.quiet(), fmt.Sprintf("%s; its traffic goes over the %s left", text, plural(left, "lane")))
	}
	if left == 0 {
		c.outage.Look()
	}
	if err := c.guarded("stop a lane", l.Carrier.Stop); err != nil {
		c.destroyLane(v, err)
	}
	if c.Sending && c.env.RequestRepair != nil {
		c.env.RequestRepair(c)
	}
	return v
}

// loseAll leaves all lanes of a first set-up, none of which has come into service.
//
// Preconditions: the connection is locked.
func (s *setup) markAllLost() {
	c, now := s.c, time.Now()
	c.neverInService = true
	for _, l := range s.lanes {
		c.target[pathOf(l)]++
		c.lostSince[pathOf(l)] = now
		c.redial(l, l.Why())
	}
	c.env.Log.Warn(c.outageText(fmt.Sprintf("%v: %v: the validated paths do not work", fault.ErrLane, c)))
	c.outage.Look()
	if c.Sending && c.env.RequestRepair != nil {
		c.env.RequestRepair(c)
	}
}

// outageText says that no lane is in service, and why.
func (c *Conn) outageText(why string) string {
	return fmt.Sprintf("%s; no lane is left: waiting for a path to %s for up to %v (NCCL_MESH_LANE_WAIT)", why, c.Session.Name(), c.env.LaneWait)
}

// warn tells the user what has become of a lane: of those over one way of all connections
// the first warns, and the others say so in the log. What is no news, as the lane flaps, is
// there only for those who look for it.
func (c *Conn) warn(what string, l *lane.Lane, noNews bool, text string) {
	if noNews {
		c.env.Log.Debug(text)
		return
	}
	say := c.env.Log.Warn
	subject := fmt.Sprintf("%s: %v - %s %v%v", what, l.Port.Now().Short(), c.Session.Name(), lane.PeerPort(l.Peer).Short(), l.Route)
	if c.env.WarnedRecently != nil && c.env.WarnedRecently(subject) {
		say = c.env.Log.Info
	}
	say(text)
}

// errFailBack is why a lane goes that nothing is wrong with.
type errFailBack struct{ text string }

func (e errFailBack) Error() string { return e.text }

func isFailBack(err error) bool {
	var e errFailBack
	return errors.As(err, &e)
}

// FailBack takes lanes over worse ways than a plan's out of service where one of the plan's is
// in it, from the sender's side: those through other nodes when a cable works again, those
// over another network when one does, or a node relays. The plan's ways were proved: one in
// service may be broken, and nobody have noticed.
func (c *Conn) FailBack(plan []lane.Plan) {
	if len(plan) == 0 {
		return
	}
	proved := map[pathKey]bool{}
	for _, p := range plan {
		proved[pathTo(p)] = true
	}
	c.mu.Lock()
	var worse []*lane.Lane
	better := false
	for _, l := range c.lanes {
		switch {
		case !l.InService():
		case l.Tier > plan[0].Tier:
			worse = append(worse, l)
		default:
			better = better || proved[pathOf(l)]
		}
	}
	if better {
		for w := range c.target {
			if w.tier > plan[0].Tier {
				delete(c.target, w)
			}
		}
	}
	c.mu.Unlock()
	for _, l := range worse {
		if better {
			c.enqueue(event{lane: l, failure: errFailBack{fmt.Sprintf("%v: %s is no longer needed: a better path between the two nodes works again", c, l.Path())}})
		}
	}
}

// drainOf is the leaving of a lane, or nil.
func (c *Conn) drainOf(l *lane.Lane) *draining {
	for _, v := range c.drains {
		if v.Lane == l {
			return v
		}
	}
	return nil
}

// accounted reports whether a lane is down at both ends, and what it carried is accounted for.
//
// Preconditions: c is locked.
func (c *Conn) isSettled(l *lane.Lane) bool {
	return l.State() == lane.Stopped && c.drainOf(l) == nil
}

// inService is how many lanes carry messages.
//
// Preconditions: c is locked.
func (c *Conn) inService() (n int) {
	for _, l := range c.lanes {
		if l.InService() {
			n++
		}
	}
	return n
}

// redial has the session look for another way when it goes over the port of a lane that
// has failed: it may be the cable.
func (c *Conn) redial(l *lane.Lane, err error) {
	local := c.Session.LocalAddr().Addr().Unmap().WithZone("")
	for _, a := range l.Port.Now().Addrs {
		if a.Addr().Unmap() == local {
			c.Session.Redial(err)
			return
		}
	}
}

// checkOutage ends a connection that has had no lane in service for too long.
//
// Preconditions: c is locked.
func (c *Conn) checkOutage() {
	if c.inService() > 0 {
		c.outage.Stop()
		return
	}
	if spent := c.outage.Look(); spent >= c.env.Scaled(c.env.LaneWait) {
		c.Fail(c.allLost(spent))
	}
}

// allLost is the error of a connection that has no lane and finds none: what it had, and
// why each failed.
func (c *Conn) allLost(spent time.Duration) error {
	var why []string
	for _, l := range c.lanes {
		if l.Why() != nil {
			why = append(why, l.Why().Error())
		}
	}
	return fmt.Errorf("%w: %v: no path to %s within %v (NCCL_MESH_LANE_WAIT): %s. Check the cables between the two nodes and both ends' ports",
		fault.ErrLane, c, c.Session.Name(), spent.Round(10*time.Millisecond), strings.Join(why, "; "))
}

// peerDrains heeds that the peer's half of a lane has come to rest.
//
// Preconditions: c is locked.
func (c *Conn) handlePeerDrained(l *lane.Lane, why string, better bool) {
	if l.State() == lane.Stopped && c.drainOf(l) == nil {
		return
	}
	err := fmt.Errorf("%w: %v: %s: %s says: %s", fault.ErrLane, c, l.Path(), c.Session.Name(), why)
	if better {
		err = errFailBack{c.Session.Name() + " says: " + why}
	}
	var flushed lane.Flushed
	v := c.startDrain(l, err)
	if v.peerDrained = true; errors.As(l.Why(), &flushed) {
		l.Fail(err) // which explains it
	}
}

// reported heeds the receiver's report.
//
// Preconditions: c is locked.
func (c *Conn) handleReport(m *handshake.Report) {
	for _, v := range c.drains {
		if v.Index == m.Lane && v.Epoch == m.Epoch && v.report == nil {
			v.report = m
			return
		}
	}
	c.settleReport(nil, m)
}

// settleReport has the sender settle what a report says.
func (c *Conn) settleReport(l *lane.Lane, m *handshake.Report) {
	if err := c.sender.settleLost(l, m); err != nil {
		c.Fail(err)
	}
	c.resumePending = true
}

// advanceDrains takes every lane that is leaving as far as it goes, and reports whether one
// has moved on.
//
// Preconditions: c is locked.
func (c *Conn) advanceDrains() (moved bool) {
	c.drains = slices.DeleteFunc(c.drains, func(v *draining) bool {
		if c.isOver() {
			return false // whoever closes the connection does the rest
		}
		if !v.drained && c.checkDrained(v) {
			moved = true
		}
		if !v.drained || !c.settle(v) {
			return false
		}
		moved = true
		if err := c.guarded("close a lane", v.Carrier.Close); err != nil {
			c.env.Log.Warn("a lane that failed did not close", "lane", v.String(), "err", err)
		}
		return true
	})
	return moved
}

// checkDrained reports whether a lane's half has come to rest, and tells the peer. One
// that takes too long is destroyed, which ends all access through it too.
func (c *Conn) checkDrained(v *draining) bool {
	if !v.Carrier.Drained() {
		if time.Since(v.since) < c.env.Scaled(drainTime) {
			return false
		}
		c.destroyLane(v, errors.New("it did not drain"))
		return v.drained
	}
	c.localDrained(v)
	return true
}

// localDrained notes that nothing of a lane touches memory here any more, and tells the peer.
func (c *Conn) localDrained(v *draining) {
	v.drained = true
	v.Enter(lane.Stopped)
	c.sendLaneDown(v.Lane)
}

// sayDown tells the peer that a lane is down, and why.
func (c *Conn) sendLaneDown(l *lane.Lane) {
	_ = c.Session.Send(&handshake.LaneDown{Conn: c.ID, Lane: l.Index, Epoch: l.Epoch, Better: isFailBack(l.Why()), Reason: l.Why().Error()}) // a dead session needs none
}

// destroyLane stops a lane that cannot be stopped otherwise.
func (c *Conn) destroyLane(v *draining, why error) {
	if err := c.guarded("close a lane", v.Carrier.Close); err != nil {
		c.Fail(fmt.Errorf("%w: %v: %v can neither be stopped nor destroyed: %w; %w", fault.ErrDevice, c, v, why, err))
		return
	}
	c.env.Log.Debug("a lane was destroyed to stop it", "conn", c.String(), "lane", v.String(), "err", why)
	c.localDrained(v)
}

// settled reports whether what a lane carried is accounted for at this side: at the
// receiver that is when both halves have come to rest, at the sender when it has the
// report too. A receiver that has closed in good order has all.
func (c *Conn) settle(v *draining) bool {
	switch {
	case c.closedCleanly():
		c.settleReport(v.Lane, &handshake.Report{})
	case !v.peerDrained, c.Sending && v.report == nil:
		return false
	case c.Sending:
		c.settleReport(v.Lane, v.report)
	default:
		m := c.receiver.report(v.Lane)
		m.Conn, m.Lane, m.Epoch = c.ID, v.Index, v.Epoch
		if err := c.send(m); err != nil {
			c.Fail(err)
		}
		c.resumePending = true
	}
	return true
}

// serve puts the lanes in mask into service: from here on one that fails is left, and
// what was said of one before is heeded. One that broke in a call of the owner's has gone
// down already.
func (s *setup) finish(mask uint32) {
	s.finished.Store(true)
	s.c.state.Enter(Open)
	s.forwardInbox()
	for _, l := range s.lanes {
		switch err := l.Failure(); {
		case mask == 0: // which is known, and has the wait for a way begin
			s.c.enqueue(event{lane: l, failure: l.Why()})
		case err != nil && mask&(1<<l.Index) != 0:
			s.c.enqueue(event{lane: l, failure: err})
		}
	}
}

// forwardInbox heeds what came for the set-up of lanes that are in service.
func (s *setup) forwardInbox() {
	for {
		select {
		case m := <-s.inbox:
			if down, ok := m.(*handshake.LaneDown); ok {
				s.c.enqueue(event{down: down})
				continue
			}
			s.c.Fail(s.c.unexpectedMessage(m, handshake.TypeLaneDown))
		default:
			return
		}
	}
}

// count is so many of a thing, in words.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
