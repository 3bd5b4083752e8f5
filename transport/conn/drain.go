package conn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// draining is a lane that has failed, until what it carried is settled. Conn.failover has its state, and decides
// what happens when: see package failover.
type draining struct {
	*lane.Lane
	since  time.Time         // when this end was stopped
	report *handshake.Report // sender: the receiver's report; nil until it arrives
}

// step tells the protocol what has happened to a lane, and returns what to do.
//
// Preconditions: c is locked.
func (c *Conn) step(l *lane.Lane, e failover.Event) failover.Actions {
	return c.failover.Step(l.Index, l.Epoch, e)
}

// startDrain takes a lane out of service, because e has happened to it for the reason err. It does nothing if
// the lane is not in service or has failed before, except that the peer's end may be drained now.
//
// Preconditions: c is locked.
func (c *Conn) startDrain(l *lane.Lane, e failover.Event, err error) {
	if !c.step(l, e).Has(failover.Stop) {
		return
	}
	l.Fail(err)
	c.countDrain(l, !isFailBack(err))
	delete(c.suspected, l)
	if l.Parts.Value() > 0 && (!c.Sending || l.Backlog < int64(l.Bytes.Value())) {
		c.outage.Reset() // the lane has carried data, so that this is a new outage
	}
	v := &draining{Lane: l, since: time.Now()}
	c.drains = append(c.drains, v)
	c.redial(l, err)
	f, text := c.flapRecordOf(pathOf(l)), err.Error()
	flap := false
	if !isFailBack(err) {
		c.lostSince[pathOf(l)] = v.since
		if flap = f.failed(v.since, c.env.Clock.Scale()); flap {
			text += "; " + f.text(v.since, c.env.Clock.Scale())
		}
	}
	remaining := c.inService()
	switch {
	case c.closedCleanly():
	case isFailBack(err):
		c.env.Log.Info(err.Error())
	case remaining == 0:
		c.warn("left", l, !flap && f.quiet(), c.outageText(text))
	default:
		c.warn("left", l, !flap && f.quiet(), fmt.Sprintf("%s; its traffic goes over the %s left", text, plural(remaining, "lane")))
	}
	if remaining == 0 {
		c.outage.Look()
	}
	if err := c.guarded("stop a lane", l.Carrier.Stop); err != nil {
		c.destroyLane(v, err)
	}
	if c.Sending && c.env.RequestRepair != nil {
		c.env.RequestRepair(c)
	}
}

// markAllLost records the lanes of a first set-up, none of which came into service, as lost, so that the
// connection waits for a path.
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

// outageText returns the log text which says that no lane is in service because of why.
func (c *Conn) outageText(why string) string {
	return fmt.Sprintf("%s; no lane is left: waiting for a path to %s for up to %v (NCCL_MESH_LANE_WAIT)", why, c.Session.Name(), c.env.LaneWait)
}

// warn logs what happened to a lane. The first connection warns about a path, and the others log it at level
// info. known says that the user has been told that the lane flaps: it is then logged at level debug only.
func (c *Conn) warn(what string, l *lane.Lane, known bool, text string) {
	if known {
		c.env.Log.Debug(text)
		return
	}
	log := c.env.Log.Warn
	subject := fmt.Sprintf("%s: %v - %s %v%v", what, l.Port.Now().Short(), c.Session.Name(), lane.PeerPort(l.Peer).Short(), l.Route)
	if c.env.WarnedRecently != nil && c.env.WarnedRecently(subject) {
		log = c.env.Log.Info
	}
	log(text)
}

// errFailBack is the reason for removing a healthy lane: a better path is up.
type errFailBack struct{ text string }

func (e errFailBack) Error() string { return e.text }

// isFailBack reports whether a lane is removed for a better path, and has not failed.
func isFailBack(err error) bool {
	var e errFailBack
	return errors.As(err, &e)
}

// FailBack drops lower-tier lanes of a sender once a lane of the plan's tier is up: relayed lanes if a cable
// works again, and lanes over another network if a cable or a relay works. It does so only if a lane in
// service is on a path of the plan, which was validated just before, because other lanes in service may have
// failed unnoticed.
func (c *Conn) FailBack(plan []lane.Spec) {
	if len(plan) == 0 {
		return
	}
	validated := map[pathKey]bool{}
	for _, p := range plan {
		validated[pathTo(p)] = true
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
			better = better || validated[pathOf(l)]
		}
	}
	if better {
		for k := range c.target {
			if k.tier > plan[0].Tier {
				delete(c.target, k)
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

// inService returns the number of lanes in service.
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

// redial makes the session look for another path if it uses the port of a lane that has failed, because the
// cable may have failed.
func (c *Conn) redial(l *lane.Lane, err error) {
	local := c.Session.LocalAddr().Addr().Unmap().WithZone("")
	for _, a := range l.Port.Now().Addrs {
		if a.Addr().Unmap() == local {
			c.Session.Redial(err)
			return
		}
	}
}

// checkOutage fails a connection that has had no lane in service for LaneWait.
//
// Preconditions: c is locked.
func (c *Conn) checkOutage() {
	if c.inService() > 0 {
		c.outage.Stop()
		return
	}
	if spent := c.outage.Look(); spent >= c.env.Clock.Scaled(c.env.LaneWait) {
		c.Fail(c.allLost(spent))
	}
}

// allLost returns the error of a connection that has found no path for the time spent. It names the last
// lanes and why each failed.
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

// handlePeerDown handles a LaneDown: the peer has drained its end of a lane because of why. better says that
// it removes the lane for a better path. A LaneDown about a lane that is settled, or that has never come into
// service here, is ignored.
//
// Preconditions: c is locked.
func (c *Conn) handlePeerDown(l *lane.Lane, why string, better bool) {
	if c.failover.At(l.Index) == failover.Vacant {
		return
	}
	err := fmt.Errorf("%w: %v: %s: %s says: %s", fault.ErrLane, c, l.Path(), c.Session.Name(), why)
	if better {
		err = errFailBack{c.Session.Name() + " says: " + why}
	}
	var flushed lane.Flushed
	if c.startDrain(l, failover.PeerDown, err); errors.As(l.Why(), &flushed) {
		l.Fail(err) // the peer's reason explains why the queue pair was flushed
	}
}

// handleReport handles a Report of the receiver. It stores the report if it is about a lane that is draining.
// Otherwise the report only grants resend credit.
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

// settleReport settles at the sender what a report says about lane l; nil if it is about none.
//
// Preconditions: c is locked.
func (c *Conn) settleReport(l *lane.Lane, m *handshake.Report) {
	if err := c.sender.settleLost(l, m); err != nil {
		c.Fail(err)
	}
	c.resumePending = true
}

// advanceDrains advances every lane that is draining as far as possible without waiting, and reports whether
// one has advanced.
//
// Preconditions: c is locked.
func (c *Conn) advanceDrains() (moved bool) {
	c.drains = slices.DeleteFunc(c.drains, func(v *draining) bool {
		if c.isOver() {
			return false // Close closes the lane
		}
		moved = c.checkDrained(v) || moved
		if !c.settle(v).Has(failover.Close) {
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

// checkDrained reports whether this end of a lane is drained since the last call, and then sends LaneDown. A
// lane that takes longer than drainTime is destroyed, which ends its access to memory too.
//
// Preconditions: c is locked.
func (c *Conn) checkDrained(v *draining) bool {
	switch at := c.failover.At(v.Index); {
	case at != failover.Draining && at != failover.PeerDrained:
		return false
	case v.Carrier.Drained():
		c.localDrained(v)
		return true
	case time.Since(v.since) < c.env.Clock.Scaled(drainTime):
		return false
	}
	return c.destroyLane(v, errors.New("it did not drain"))
}

// localDrained notes that the lane does not touch memory here any more, and sends LaneDown.
//
// Preconditions: c is locked.
func (c *Conn) localDrained(v *draining) {
	v.Enter(lane.Stopped)
	if c.step(v.Lane, failover.Drained).Has(failover.SendLaneDown) {
		c.sendLaneDown(v.Lane)
	}
}

// sendLaneDown tells the peer that this end of a lane is down, and why.
func (c *Conn) sendLaneDown(l *lane.Lane) {
	_ = c.Session.Send(&handshake.LaneDown{Conn: c.ID, Lane: l.Index, Epoch: l.Epoch, Better: isFailBack(l.Why()), Reason: l.Why().Error()}) // an error means that the session is dead, which ends the connection
}

// destroyLane destroys a lane that cannot be stopped because of why, or does not drain, and reports whether it
// could.
//
// Preconditions: c is locked.
func (c *Conn) destroyLane(v *draining, why error) bool {
	if err := c.guarded("close a lane", v.Carrier.Close); err != nil {
		c.Fail(fmt.Errorf("%w: %v: %v can neither be stopped nor destroyed: %w; %w", fault.ErrDevice, c, v, why, err))
		return false
	}
	c.env.Log.Debug("a lane was destroyed to stop it", "conn", c.String(), "lane", v.String(), "err", why)
	c.localDrained(v)
	return true
}

// settle settles what a lane carried, if it is time to, and returns what is left to do. A sender needs the
// receiver's report, unless the receiver has closed cleanly and so has all messages.
//
// Preconditions: c is locked.
func (c *Conn) settle(v *draining) failover.Actions {
	e, m := failover.Reported, v.report
	switch {
	case c.closedCleanly():
		e, m = failover.PeerClosed, &handshake.Report{}
	case c.Sending && m == nil:
		return 0
	}
	do := c.step(v.Lane, e)
	switch {
	case !do.Has(failover.Settle):
	case c.Sending:
		c.settleReport(v.Lane, m)
	default:
		c.sendReport(v)
	}
	return do
}

// sendReport tells the sender what has arrived, now that a lane is drained at both ends.
//
// Preconditions: c is locked.
func (c *Conn) sendReport(v *draining) {
	m := c.receiver.report(v.Lane)
	m.Conn, m.Lane, m.Epoch = c.ID, v.Index, v.Epoch
	if err := c.send(m); err != nil {
		c.Fail(err)
	}
	c.resumePending = true
}

// finish ends a set-up whose lanes in mask are in service. Events of the set-up that came before are queued.
// A lane that has failed since, before finished was set, gets an event, because ReportFailure did not queue
// one.
func (s *setup) finish(mask uint32) {
	s.finished.Store(true)
	s.c.state.Enter(Open)
	s.forwardInbox()
	for _, l := range s.lanes {
		switch err := l.Failure(); {
		case mask == 0: // no lane is up; the event starts the goroutine, which waits for a path
			s.c.enqueue(event{lane: l, failure: l.Why()})
		case err != nil && mask&(1<<l.Index) != 0:
			s.c.enqueue(event{lane: l, failure: err})
		}
	}
}

// forwardInbox moves LaneDown messages that came for the set-up to the event queue, because the lanes are in
// service now. Any other message fails the connection.
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

// plural returns n and a noun, which gets an s unless n is 1.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
