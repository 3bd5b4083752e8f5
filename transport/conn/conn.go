package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/transport/board"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stage"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/turn"
)

// Conn is one end of a connection: its lanes, and what it sends or receives over them. A [Sender] and a [Receiver] are one; one that
// is neither is a trial, whose lanes carry nothing but proofs.
type Conn struct {
	statsEntry
	lane.Shared // which lanes know, and does not change after the set-up

	sender      *Sender     // that this is; nil of another
	receiver    *Receiver   // that this is; nil of another
	board       board.Board // what C may read
	env         *Env
	maxPollGap  time.Duration // stallGap, scaled
	watch       *Watch        // of requests, or nil
	firstSetup  *setup
	joining     atomic.Pointer[setup] // of more lanes; nil while there is none
	joins       sync.WaitGroup
	admits      atomic.Int32
	domainMu    turn.Turn // held while a domain joins; taken before mu
	stopMu      turn.Turn // held while lanes are stopped for good; taken before mu
	state       stage.Stage[State]
	joinContext context.Context // ends when lanes are to join no more
	cancelJoins context.CancelFunc

	ending          atomic.Pointer[ending] // nil while the connection is not over
	peerNotified    atomic.Bool            // the peer needs no word about the end
	peerDoneOnce    sync.Once
	failureRecorded atomic.Bool
	peerDone        chan struct{}  // closed when the peer has closed the connection, or is gone
	withdrawn       atomic.Uintptr // memory that was deregistered with a receive outstanding, or 0

	events eventQueue // of what happens to lanes in service

	mu             turn.Turn // guards everything below, and a sender's and receiver's own; may be held while verbs take long
	lanes          []*lane.Lane
	domains        []lane.Domain
	traits         lane.Traits             // the strictest of the lanes'
	peerDomains    int                     // domains of the peer
	domainsAdded   bool                    // it has had fewer
	regions        map[*lane.Region]uint64 // and in which order they were registered
	registrations  uint64                  // of them, so far
	regionJoined   sync.Cond               // on mu: a region is no longer being registered
	drains         []*draining             // lanes that have failed and are not done with
	resumePending  bool                    // something is to be sent again
	lostSince      map[pathKey]time.Time   // since when ways lack a lane that they had
	target         map[pathKey]int         // lanes of each way that were in service at a time
	flapRecords    map[pathKey]*flapRecord // of ways whose lanes came back and failed again
	neverInService bool                    // its first lanes failed before they were in service, and none has been since
	confined       bool                    // to the ways of the first plan
	lastEpoch      uint32                  // epoch of the lanes that joined last, at the sender; of the goroutine that calls Join
	suspected      map[*lane.Lane]uint64   // Lane.Delivered when they were doubted last
	outage         clock.Watch             // without a lane in service, since one was of use
	stalls         stalls

	requests      []Request // of a receiver by slot; a sender's copies of eager messages follow
	pending       int       // requests not complete
	testing       *Request  // that is being tested; nil while none is
	freeTraces    []*Trace  // not in use
	requestsBegun uint64    // requests, while there is a watch
}

var _ lane.Owner = (*Conn)(nil)

// make makes a connection without lanes, whose lanes tell sink what they carry.
func (c *Conn) init(env *Env, s *control.Session, id uint32, sending bool, sink lane.Sink) {
	c.Shared = lane.Shared{ID: id, Sending: sending, Session: s, Sink: sink, Owner: c}
	c.Count = new(stats.Conn)
	c.env, c.maxPollGap, c.peerDone = env, env.Scaled(pollGapLimit), make(chan struct{})
	c.regions, c.suspected = map[*lane.Region]uint64{}, map[*lane.Lane]uint64{}
	c.target, c.flapRecords, c.lostSince = map[pathKey]int{}, map[pathKey]*flapRecord{}, map[pathKey]time.Time{}
	c.events.wakeup = make(chan struct{}, 1)
	c.stalls.start = time.Now()
	c.regionJoined.L = &c.mu
	c.joinContext, c.cancelJoins = context.WithCancel(env.Context)
	c.firstSetup = newSetup(c, 0)
}

// Lock locks the connection, TryLock does if nobody else has.
func (c *Conn) Lock()         { c.mu.Lock() }
func (c *Conn) TryLock() bool { return c.mu.TryLock() }
func (c *Conn) Unlock()       { c.mu.Unlock() }

// Lanes are the lanes, by index; not to be changed.
//
// Preconditions: c is locked.
func (c *Conn) Lanes() []*lane.Lane { return c.lanes }

// poll takes the news from every lane that may have some.
//
// Preconditions: c is locked.
func (c *Conn) poll() {
	receiving := c.expectsData()
	timed := c.Sending && len(c.lanes) > 1
	if timed {
		c.stalls.beforePoll(c.maxPollGap)
	}
	for _, d := range c.domains {
		d.Poll(receiving)
	}
	if timed {
		c.checkStalls()
	}
	if c.resumePending {
		c.resume()
	}
	if !c.traits.Polled { // else every call is Go's
		c.board.Polled()
		return
	}
	c.flush(!c.expectsData())
}

// acknowledge tells the peer at once of parts that it waits to hear of.
//
// Preconditions: c is locked.
func (c *Conn) acknowledge() { c.flush(true) }

func (c *Conn) flush(idle bool) {
	for _, d := range c.domains {
		d.Flush(idle)
	}
}

// pollAll takes what has come from a peer that has left, though nobody waits for it.
//
// Preconditions: c is locked.
func (c *Conn) pollAll() {
	for _, d := range c.domains {
		d.Poll(true)
	}
}

// expectsData reports whether parts may arrive.
func (c *Conn) expectsData() bool { return c.receiver != nil && c.receiver.granted > 0 }

// resume sends again what there is room for, of what is owed: parts, or grants. A call of the owner's polls the lanes, or else
// the goroutine that heeds them, does so until that is all.
func (c *Conn) resume() {
	done := true
	switch {
	case c.sender != nil:
		done = c.sender.resume()
	case c.receiver != nil:
		done = c.receiver.resume()
	}
	c.resumePending = !done
}

// Moved is a number that changes when data moves. It may be called from any goroutine.
func (c *Conn) Progress() uint64 { return c.Count.Bytes.Value() + c.Count.Messages.Value() }

// figures says what the connection carried.
func (c *Conn) summary() string {
	n := c.Count
	text := fmt.Sprintf("%d messages, %d bytes, %d grants waited for", n.Messages.Value(), n.Bytes.Value(), n.Waits.Value())
	if n := n.Resent.Value(); n > 0 {
		text += fmt.Sprintf(", %d bytes sent again", n)
	}
	return text
}

// hasUnsent reports whether something has to go out, and nothing but this makes the
// connection's owner call again: a receive is not reported done before its sender has been
// told, nor an eager send before the kernel has it.
//
// Preconditions: c is locked.
func (c *Conn) hasUnsent() bool {
	if !c.traits.Polled || c.Ended() != nil || c.expectsData() {
		return false
	}
	for _, l := range c.lanes {
		if l.Carrier.Owes() {
			return true
		}
	}
	return false
}

// openBoard makes the board of a connection that carries messages.
func (c *Conn) openBoard() error {
	if c.Probe {
		return nil
	}
	var ring uintptr
	if c.Sending {
		ring = c.Ring.Base()
	}
	if err := c.board.Open(ring); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publishSources()
	return nil
}

const _ = uint(board.MaxSources - lane.MaxDomains)

// showSources tells C which completion queues there are.
//
// Preconditions: c is locked.
func (c *Conn) publishSources() {
	sources := make([]*board.Source, len(c.domains))
	for i, d := range c.domains {
		sources[i] = d.Source()
	}
	c.board.Look(sources...)
}

// destroy gives back all lanes, domains and memory; while a lane cannot be, what it
// may use stays.
func (c *Conn) destroy() error {
	c.env.Forget(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closeLanes(); err != nil {
		return err
	}
	errs := []error{c.removeRegions()}
	for _, d := range c.domains {
		errs = append(errs, d.Close())
	}
	c.lanes, c.domains = nil, nil
	c.board.Close()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.Ring != nil {
		c.Ring.Free()
		c.Ring = nil
	}
	return nil
}

// Discard destroys a connection that nobody uses.
func (c *Conn) Discard() error {
	c.events.close()
	c.cancelJoins()
	c.joins.Wait()
	return c.env.LanePool.Do(c.destroy)
}

// Abort ends a connection that did not come up.
func (c *Conn) Abort(err error) error {
	c.Fail(err)
	return errors.Join(err, c.Discard())
}

// guarded calls f; a panic in it becomes an error.
func (c *Conn) guarded(what string, f func() error) error {
	return fault.Guarded(c.env.Log, what, f)
}
