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
const maxNews = 8 * lane.MaxParts

// heeding is how word of a lane comes to the goroutine that heeds it. That runs while
// a lane is on its way out, and takes the connection's mutex, which those who bring the
// word must not.
type heeding struct {
	kick chan struct{} // holds a token when there is news

	mu     sync.Mutex // a leaf
	closed bool       // no more lanes may join
	runs   bool       // the goroutine
	news   []news
}

// news is what has happened to a lane: one of these.
type news struct {
	evidence error // that lane is broken
	doubt    error // whether it carries anything
	lane     *lane.Lane

	port lane.Port // has lost its carrier: its lanes may be broken

	down   *handshake.LaneDown
	report *handshake.Report
	want   *handshake.Want
}

// Evidence says that a lane is broken. It does not block, and may be called from any
// goroutine.
func (c *Conn) Evidence(l *lane.Lane, err error) {
	if c.withdrawn.Load() != 0 { // which explains it, and would break every lane
		c.Fail(c.blame(err))
		return
	}
	l.Accuse(err) // before the look: a set-up that ends now sees one or the other
	if s := c.setupOf(l.Epoch); s == nil || s.over.Load() {
		c.tell(news{lane: l, evidence: err})
	}
}

// Doubt says that a lane may carry nothing now. It does not block, and may be called
// from any goroutine.
func (c *Conn) Doubt(l *lane.Lane, err error) {
	if c.life.At() == Open {
		c.tell(news{lane: l, doubt: err})
	}
}

// PortDown says that a port has lost its carrier. It does not block, and may be called
// from any goroutine.
func (c *Conn) PortDown(p lane.Port) {
	if c.life.At() == Open {
		c.tell(news{port: p})
	}
}

// tell has news heeded. Of a trial the outcome is known, and the peer may be done with it.
func (c *Conn) tell(n news) {
	if c.Trial {
		return
	}
	fits, begin := c.heed.add(n)
	if !fits {
		c.Fail(fmt.Errorf("%w: %v: too many lane events from the peer", fault.ErrProtocol, c))
	}
	if begin { // on a goroutine of its own, as Background may run it at once
		go guard.Run(func() { c.env.Background(c.heedAll) }, c.panicked)
	}
}

// add notes news. begin says that the goroutine has to be started.
func (h *heeding) add(n news) (fits, begin bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.news) >= maxNews {
		return false, false
	}
	h.news = append(h.news, n)
	if h.runs {
		h.poke()
		return true, false
	}
	h.runs = true
	return true, true
}

// poke has the goroutine look, if it runs.
func (h *heeding) poke() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// panicked ends the connection over a panic in a goroutine of its own.
func (c *Conn) panicked(p *guard.Panic) {
	fault.Panicked(c.env.Log, c.String(), p)
	c.Fail(fmt.Errorf("%w: %v: %w", fault.ErrInternal, c, p))
}

// close ends the joining of lanes.
func (h *heeding) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// mayJoin reports whether lanes may join, and then counts the one who has them.
func (h *heeding) mayJoin(joins *sync.WaitGroup) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		joins.Add(1)
	}
	return !h.closed
}

// next takes the news, and ends the goroutine when there is none and none is needed.
func (h *heeding) next(needed bool) (all []news, done bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, h.news = h.news, nil
	if len(all) == 0 && !needed {
		h.runs = false
	}
	return all, !h.runs
}

// heedAll heeds what happens to lanes until all that have failed are done with.
func (c *Conn) heedAll() {
	guard.Run(func() {
		const least, most = 10 * time.Microsecond, 50 * time.Millisecond
		timer := c.env.Clock.NewTimer(0)
		defer timer.Stop()
		for wait := least; ; wait = min(2*wait, most) {
			more, moved := c.attend()
			if !more {
				return
			}
			if moved {
				wait = least
			}
			timer.Reset(wait)
			select {
			case <-c.heed.kick:
				wait = least
			case <-timer.C:
			case <-c.env.Context.Done(): // and all connections are closed
				return
			}
		}
	}, c.panicked)
}

// attend heeds the news and takes each lane on that is leaving. more says that there
// will be something to do, moved that there was.
func (c *Conn) attend() (more, moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.life.At() >= Stopped || c.over()
	all, done := c.heed.next(!over && (len(c.leaving) > 0 || c.owing || c.life.At() == Open && c.inService() == 0))
	switch {
	case done:
		return false, false
	case over:
		return true, false // to take what is still said
	}
	for _, n := range all {
		c.heedOne(n)
	}
	moved = c.takeLeave()
	c.awaitWay()
	if c.owing {
		c.resume()
	}
	return true, moved || len(all) > 0
}

// over reports whether no lane matters any more. A sender whose peer has closed in good
// order may have sends that are done, and that it does not know of.
//
// Preconditions: c is locked.
func (c *Conn) over() bool {
	return c.Ended() != nil && !(c.closedCleanly() && c.pending > 0)
}

// closedCleanly reports whether this side sends and the receiver has closed the connection with
// nothing outstanding: it has all that was ever sent, and has granted nothing else.
//
// Preconditions: c is locked.
func (c *Conn) closedCleanly() bool {
	e := c.ending.Load()
	return c.Sending && e != nil && !e.leftAt.IsZero() && !e.gone
}

// heedOne heeds one piece of news. What it says of a lane that is no more comes late,
// and means nothing.
//
// Preconditions: c is locked.
func (c *Conn) heedOne(n news) {
	switch {
	case n.port != nil && !c.spared(n.port):
		c.env.Log.Debug("a port went down and no lane uses another port", "conn", c.String(), "port", n.port.Now().String())
	case n.port != nil:
		for _, l := range c.lanes {
			if l.Port == n.port && l.InService() {
				c.leave(l, fmt.Errorf("%w: %v: %s: %v went down; check the cable", fault.ErrLane, c, l.Way(), n.port.Now()))
			}
		}
	case n.down != nil:
		if l := c.laneOf(n.down.Lane, n.down.Epoch); l != nil {
			c.peerLeft(l, n.down.Reason, n.down.Better)
		}
	case n.report != nil && !c.Sending:
		c.Fail(fmt.Errorf("%w: %v: the receiver was sent a Report, which is for senders", fault.ErrProtocol, c))
	case n.report != nil:
		c.reported(n.report)
	case n.want != nil && c.Sending:
		c.Fail(fmt.Errorf("%w: %v: the sender was sent a Want, which is for receivers", fault.ErrProtocol, c))
	case n.want != nil:
		c.poll()
		c.receiver.wanted(n.want.Eager)
	case c.laneOf(n.lane.Index, n.lane.Epoch) != n.lane, n.lane.State() == lane.Stopped:
	case n.doubt != nil:
		c.doubt(n.lane, n.doubt)
	default:
		c.leave(n.lane, n.evidence)
	}
}

// doubt leaves a lane that is doubted, unless it has delivered something since it was
// before, or no other way is in service: who is silent may only be slow.
//
// Preconditions: c is locked.
func (c *Conn) doubt(l *lane.Lane, err error) {
	another := func(o *lane.Lane) bool { return o.InService() && o.Route.String() != l.Route.String() }
	if !l.InService() || !slices.ContainsFunc(c.lanes, another) {
		return
	}
	if before, again := c.doubted[l]; again && before == l.Delivered {
		c.leave(l, err)
		return
	}
	c.doubted[l] = l.Delivered
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
func (c *Conn) spared(p lane.Port) bool {
	return slices.ContainsFunc(c.lanes, func(l *lane.Lane) bool { return l.InService() && l.Port != p && !l.Port.Dark() })
}
