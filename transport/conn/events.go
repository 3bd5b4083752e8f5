package conn

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// maxNews is how much may happen to a connection's lanes before it is heeded: more than
// both sides can say of all lanes.
const maxEvents = 8 * lane.MaxParts

// eventQueue is how word of a lane comes to the goroutine that heeds it. That runs while
// a lane is on its way out, and takes the connection's mutex, which those who bring the
// word must not.
type eventQueue struct {
	wakeup chan struct{} // holds a token when there is news

	mu      sync.Mutex // a leaf
	closed  bool       // no more lanes may join
	running bool       // the goroutine
	queue   []event
}

// event is what has happened to a lane: one of these.
type event struct {
	failure   error // that lane is broken
	suspicion error // whether it carries anything
	lane      *lane.Lane

	port lane.Port // has lost its carrier: its lanes may be broken

	down   *handshake.LaneDown
	report *handshake.Report
	want   *handshake.Want
}

// ReportFailure says that a lane is broken. It does not block, and may be called from any
// goroutine.
func (c *Conn) ReportFailure(l *lane.Lane, err error) {
	if c.withdrawn.Load() != 0 { // which explains it, and would break every lane
		c.Fail(c.explainWithdrawn(err))
		return
	}
	l.MarkFailed(err) // before the look: a set-up that ends now sees one or the other
	if s := c.setupOf(l.Epoch); s == nil || s.finished.Load() {
		c.enqueue(event{lane: l, failure: err})
	}
}

// Suspect says that a lane may carry nothing now. It does not block, and may be called
// from any goroutine.
func (c *Conn) Suspect(l *lane.Lane, err error) {
	if c.state.At() == Open {
		c.enqueue(event{lane: l, suspicion: err})
	}
}

// PortDown says that a port has lost its carrier. It does not block, and may be called
// from any goroutine.
func (c *Conn) PortDown(p lane.Port) {
	if c.state.At() == Open {
		c.enqueue(event{port: p})
	}
}

// enqueue has news heeded. Of a trial the outcome is known, and the peer may be done with it.
func (c *Conn) enqueue(n event) {
	if c.Probe {
		return
	}
	fits, begin := c.events.add(n)
	if !fits {
		c.Fail(fmt.Errorf("%w: %v: too many lane events from the peer", fault.ErrProtocol, c))
	}
	if begin { // on a goroutine of its own, as Background may run it at once
		go guard.Run(func() { c.env.Background(c.runEvents) }, c.panicked)
	}
}

// add notes news. begin says that the goroutine has to be started.
func (q *eventQueue) add(n event) (fits, begin bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) >= maxEvents {
		return false, false
	}
	q.queue = append(q.queue, n)
	if q.running {
		q.wake()
		return true, false
	}
	q.running = true
	return true, true
}

// wake has the goroutine look, if it runs.
func (q *eventQueue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// panicked ends the connection over a panic in a goroutine of its own.
func (c *Conn) panicked(p *guard.Panic) {
	fault.Panicked(c.env.Log, c.String(), p)
	c.Fail(fmt.Errorf("%w: %v: %w", fault.ErrInternal, c, p))
}

// close ends the joining of lanes.
func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// mayJoin reports whether lanes may join, and then counts the one who has them.
func (q *eventQueue) mayJoin(joins *sync.WaitGroup) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		joins.Add(1)
	}
	return !q.closed
}

// next takes the news, and ends the goroutine when there is none and none is needed.
func (q *eventQueue) next(needed bool) (all []event, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.queue = q.queue, nil
	if len(all) == 0 && !needed {
		q.running = false
	}
	return all, !q.running
}

// runEvents heeds what happens to lanes until all that have failed are done with.
func (c *Conn) runEvents() {
	guard.Run(func() {
		const least, most = 10 * time.Microsecond, 50 * time.Millisecond
		timer := c.env.Clock.NewTimer(0)
		defer timer.Stop()
		for wait := least; ; wait = min(2*wait, most) {
			more, moved := c.stepEvents()
			if !more {
				return
			}
			if moved {
				wait = least
			}
			timer.Reset(wait)
			select {
			case <-c.events.wakeup:
				wait = least
			case <-timer.C:
			case <-c.env.Context.Done(): // and all connections are closed
				return
			}
		}
	}, c.panicked)
}

// stepEvents heeds the news and takes each lane on that is leaving. more says that there
// will be something to do, moved that there was.
func (c *Conn) stepEvents() (more, moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.state.At() >= Stopped || c.isOver()
	all, done := c.events.next(!over && (len(c.drains) > 0 || c.resumePending || c.state.At() == Open && c.inService() == 0))
	switch {
	case done:
		return false, false
	case over:
		return true, false // to take what is still said
	}
	for _, n := range all {
		c.handleEvent(n)
	}
	moved = c.advanceDrains()
	c.checkOutage()
	if c.resumePending {
		c.resume()
	}
	return true, moved || len(all) > 0
}

// over reports whether no lane matters any more. A sender whose peer has closed in good
// order may have sends that are done, and that it does not know of.
//
// Preconditions: c is locked.
func (c *Conn) isOver() bool {
	return c.Ended() != nil && !(c.closedCleanly() && c.pending > 0)
}

// closedCleanly reports whether this side sends and the receiver has closed the connection with
// nothing outstanding: it has all that was ever sent, and has granted nothing else.
//
// Preconditions: c is locked.
func (c *Conn) closedCleanly() bool {
	e := c.ending.Load()
	return c.Sending && e != nil && !e.closedAt.IsZero() && !e.processEnded
}

// handleEvent heeds one piece of news. What it says of a lane that is no more comes late,
// and means nothing.
//
// Preconditions: c is locked.
func (c *Conn) handleEvent(n event) {
	switch {
	case n.port != nil && !c.otherPortInService(n.port):
		c.env.Log.Debug("a port went down and no lane uses another port", "conn", c.String(), "port", n.port.Now().String())
	case n.port != nil:
		for _, l := range c.lanes {
			if l.Port == n.port && l.InService() {
				c.startDrain(l, fmt.Errorf("%w: %v: %s: %v went down; check the cable", fault.ErrLane, c, l.Path(), n.port.Now()))
			}
		}
	case n.down != nil:
		if l := c.laneOf(n.down.Lane, n.down.Epoch); l != nil {
			c.handlePeerDrained(l, n.down.Reason, n.down.Better)
		}
	case n.report != nil && !c.Sending:
		c.Fail(fmt.Errorf("%w: %v: the receiver was sent a Report, which is for senders", fault.ErrProtocol, c))
	case n.report != nil:
		c.handleReport(n.report)
	case n.want != nil && c.Sending:
		c.Fail(fmt.Errorf("%w: %v: the sender was sent a Want, which is for receivers", fault.ErrProtocol, c))
	case n.want != nil:
		c.poll()
		c.receiver.grantsRequested(n.want.Eager)
	case c.laneOf(n.lane.Index, n.lane.Epoch) != n.lane, n.lane.State() == lane.Stopped:
	case n.suspicion != nil:
		c.suspect(n.lane, n.suspicion)
	default:
		c.startDrain(n.lane, n.failure)
	}
}

// suspect leaves a lane that is doubted, unless it has delivered something since it was
// before, or no other way is in service: who is silent may only be slow.
//
// Preconditions: c is locked.
func (c *Conn) suspect(l *lane.Lane, err error) {
	another := func(o *lane.Lane) bool { return o.InService() && o.Route.String() != l.Route.String() }
	if !l.InService() || !slices.ContainsFunc(c.lanes, another) {
		return
	}
	if before, again := c.suspected[l]; again && before == l.Delivered {
		c.startDrain(l, err)
		return
	}
	c.suspected[l] = l.Delivered
}

// laneOf is the lane of that index and epoch, or nil.
func (c *Conn) laneOf(index uint8, epoch uint32) *lane.Lane {
	if int(index) >= len(c.lanes) || c.lanes[index].Epoch != epoch {
		return nil
	}
	return c.lanes[index]
}

// spared reports whether a lane is in service over another port, and that port has a
// carrier: lanes over p are not needed.
//
// Preconditions: c is locked.
func (c *Conn) otherPortInService(p lane.Port) bool {
	return slices.ContainsFunc(c.lanes, func(l *lane.Lane) bool { return l.InService() && l.Port != p && !l.Port.NoCarrier() })
}
