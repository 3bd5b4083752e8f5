package conn

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// maxEvents is the most events that may be queued: more than both sides can report about all lanes.
const maxEvents = 8 * lane.MaxParts

// eventQueue is a queue of lane events, read by the connection's event goroutine. The goroutine runs while a
// lane drains. It locks the connection, which the code that queues an event must not do.
type eventQueue struct {
	wakeup chan struct{} // holds a token if the goroutine has something to do

	mu      sync.Mutex // no other lock is taken while it is held
	closed  bool       // no more lanes may join
	running bool       // the event goroutine runs
	queue   []event
}

// event is an event of a lane or port. One group of fields is set.
type event struct {
	failure   error // lane has failed
	suspicion error // lane may have failed
	lane      *lane.Lane

	port lane.Port // has lost its carrier, so that its lanes may have failed

	down   *handshake.LaneDown
	report *handshake.Report
	want   *handshake.Want

	window    *handshake.Window
	windowEnd *handshake.WindowEnd
}

// ReportFailure reports that a lane has failed. It does not block, and may be called from any goroutine.
func (c *Conn) ReportFailure(l *lane.Lane, err error) {
	if c.withdrawn.Load() != 0 { // access to deregistered memory is the likely cause, and fails on every lane
		c.Fail(c.explainWithdrawn(err))
		return
	}
	l.MarkFailed(err) // before finished is read: a set-up that ends now either sees the mark or gets the event
	if s := c.setupOf(l.Epoch); s == nil || s.finished.Load() {
		c.enqueue(event{lane: l, failure: err})
	}
}

// Suspect reports that a lane may have failed. It does not block, and may be called from any goroutine.
func (c *Conn) Suspect(l *lane.Lane, err error) {
	if c.state.At() == Open {
		c.enqueue(event{lane: l, suspicion: err})
	}
}

// PortDown reports that a port has lost its carrier. It does not block, and may be called from any goroutine.
func (c *Conn) PortDown(p lane.Port) {
	if c.state.At() == Open {
		c.enqueue(event{port: p})
	}
}

// enqueue queues an event and starts or wakes the event goroutine. A probe ignores events, because its result
// is known by then. Too many events fail the connection.
func (c *Conn) enqueue(e event) {
	if c.Probe {
		return
	}
	fits, start := c.events.add(e)
	if !fits {
		c.Fail(fmt.Errorf("%w: %v: too many lane events from the peer", fault.ErrProtocol, c))
	}
	if start { // on a new goroutine, because Background may run the function before it returns
		go guard.Run(func() { c.env.Background(c.runEvents) }, c.panicked)
	}
}

// add adds an event. fits is false if the queue is full. start says that the caller must start the goroutine.
func (q *eventQueue) add(e event) (fits, start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := maxEvents
	if e.window != nil || e.windowEnd != nil {
		most += 2 * maxWindows
	}
	if len(q.queue) >= most {
		return false, false
	}
	q.queue = append(q.queue, e)
	if q.running {
		q.wake()
		return true, false
	}
	q.running = true
	return true, true
}

// wake wakes the event goroutine if it sleeps.
func (q *eventQueue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// panicked ends the connection because one of its goroutines has panicked.
func (c *Conn) panicked(p *guard.Panic) {
	fault.Panicked(c.env.Log, c.String(), p)
	c.Fail(fmt.Errorf("%w: %v: %w", fault.ErrInternal, c, p))
}

// close makes mayJoin return false from now on.
func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// mayJoin reports whether lanes may join. If so it adds 1 to joins, for which the caller must call Done.
func (q *eventQueue) mayJoin(joins *sync.WaitGroup) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		joins.Add(1)
	}
	return !q.closed
}

// next removes and returns all events. If there are none, and needed is false, the goroutine must end: done
// is then true.
func (q *eventQueue) next(needed bool) (all []event, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.queue = q.queue, nil
	if len(all) == 0 && !needed {
		q.running = false
	}
	return all, !q.running
}

// runEvents is the event goroutine. It handles events until all lanes that failed are drained and settled.
func (c *Conn) runEvents() {
	guard.Run(func() {
		const minWait, maxWait = 10 * time.Microsecond, 50 * time.Millisecond
		timer := c.env.Clock.NewTimer(0)
		defer timer.Stop()
		for wait := minWait; ; wait = min(2*wait, maxWait) {
			more, moved := c.stepEvents()
			if !more {
				return
			}
			if moved {
				wait = minWait
			}
			timer.Reset(wait)
			select {
			case <-c.events.wakeup:
				wait = minWait
			case <-timer.C:
			case <-c.env.Context.Done(): // the process ends and closes all connections
				return
			}
		}
	}, c.panicked)
}

// stepEvents handles all queued events and advances the draining of lanes. more says that the event goroutine
// must call it again, moved that it has changed something.
func (c *Conn) stepEvents() (more, moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.state.At() >= Stopped || c.isOver()
	all, done := c.events.next(!over && (len(c.drains) > 0 || c.resumePending || c.state.At() == Open && c.inService() == 0))
	switch {
	case done:
		return false, false
	case over:
		return true, false // the next call empties the queue
	}
	for _, e := range all {
		c.handleEvent(e)
	}
	moved = c.advanceDrains()
	c.checkOutage()
	if c.resumePending {
		c.resume()
	}
	return true, moved || len(all) > 0
}

// isOver reports whether the connection has ended and its lanes need no attention. A sender with outstanding
// requests whose receiver has closed cleanly is not over, because those sends are done and their
// acknowledgements may still come.
//
// Preconditions: c is locked.
func (c *Conn) isOver() bool {
	return c.Ended() != nil && !(c.closedCleanly() && c.pending > 0)
}

// closedCleanly reports whether c is a sender and the receiver has closed the connection with no receive
// outstanding: the receiver has all messages that were ever sent, and has granted nothing else.
//
// Preconditions: c is locked.
func (c *Conn) closedCleanly() bool {
	e := c.ending.Load()
	return c.Sending && e != nil && !e.closedAt.IsZero() && !e.processEnded
}

// handleEvent handles one event. It ignores an event of a lane that is not part of the connection any more.
//
// Preconditions: c is locked.
func (c *Conn) handleEvent(e event) {
	switch {
	case e.port != nil && !c.otherPortInService(e.port):
		c.env.Log.Debug("a port went down and no lane uses another port", "conn", c.String(), "port", e.port.Now().String())
	case e.port != nil:
		for _, l := range c.lanes {
			if l.Port == e.port && l.InService() {
				c.startDrain(l, failover.Failed, fmt.Errorf("%w: %v: %s: %v went down; check the cable", fault.ErrLane, c, l.Path(), e.port.Now()))
			}
		}
	case e.down != nil:
		if l := c.laneOf(e.down.Lane, e.down.Epoch); l != nil {
			c.handlePeerDown(l, e.down.Reason, e.down.Better)
		}
	case e.report != nil && !c.Sending:
		c.Fail(fmt.Errorf("%w: %v: the receiver was sent a Report, which is for senders", fault.ErrProtocol, c))
	case e.report != nil:
		c.handleReport(e.report)
	case e.want != nil && c.Sending:
		c.Fail(fmt.Errorf("%w: %v: the sender was sent a Want, which is for receivers", fault.ErrProtocol, c))
	case e.want != nil:
		c.poll()
		c.receiver.grantsRequested(e.want.Eager)
	case e.window != nil, e.windowEnd != nil:
		c.handleWindow(e.window, e.windowEnd)
	case c.laneOf(e.lane.Index, e.lane.Epoch) != e.lane:
	case e.suspicion != nil:
		c.suspect(e.lane, e.suspicion)
	default:
		c.startDrain(e.lane, failover.Failed, e.failure)
	}
}

// suspect drains a lane that is suspected for the second time without a delivery in between, unless no lane
// of another route is in service. Once is not enough, because a peer that does not answer may only be slow.
//
// Preconditions: c is locked.
func (c *Conn) suspect(l *lane.Lane, err error) {
	another := func(o *lane.Lane) bool { return o.InService() && o.Route.String() != l.Route.String() }
	if !l.InService() || !slices.ContainsFunc(c.lanes, another) {
		return
	}
	if before, again := c.suspected[l]; again && before == l.Delivered {
		c.startDrain(l, failover.Failed, err)
		return
	}
	c.suspected[l] = l.Delivered
}

// laneOf returns the lane of that index and epoch, or nil.
//
// Preconditions: c is locked.
func (c *Conn) laneOf(index uint8, epoch uint32) *lane.Lane {
	if int(index) >= len(c.lanes) || c.lanes[index].Epoch != epoch {
		return nil
	}
	return c.lanes[index]
}

// otherPortInService reports whether a lane over another port than p is in service, and that port has a
// carrier, so that lanes over p are not needed.
//
// Preconditions: c is locked.
func (c *Conn) otherPortInService(p lane.Port) bool {
	return slices.ContainsFunc(c.lanes, func(l *lane.Lane) bool { return l.InService() && l.Port != p && !l.Port.NoCarrier() })
}
