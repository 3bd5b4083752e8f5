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
	"ncclmesh/transport/conn/failover"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stage"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/turn"
)

// Conn is one end of a connection: its lanes and the messages that they carry. A [Sender] or a [Receiver]
// embeds it. A Conn without either is a probe: its lanes carry validation packets only.
type Conn struct {
	statsEntry
	lane.Shared // what lanes read; fixed after set-up

	sender      *Sender     // the sender that embeds this Conn; nil at a receiver and in a probe
	receiver    *Receiver   // the receiver that embeds this Conn; nil at a sender and in a probe
	board       board.Board // shared with C, which reads and writes it
	env         *Env
	maxPollGap  time.Duration         // pollGapLimit, scaled
	watch       *Watch                // receives traces of requests; nil: nobody watches
	firstSetup  *setup                // set-up of the first lanes
	joining     atomic.Pointer[setup] // set-up of the lanes that join now; nil while none do
	joins       sync.WaitGroup        // goroutines that set up joining lanes
	admits      atomic.Int32          // joins of the peer's that are in progress
	domainMu    turn.Turn             // serialises the opening of domains; locked before mu
	stopMu      turn.Turn             // serialises the final stop of the lanes; locked before mu
	state       stage.Stage[State]
	joinContext context.Context // cancelled when no more lanes may join
	cancelJoins context.CancelFunc

	ending          atomic.Pointer[ending] // nil while the connection has not ended
	peerNotified    atomic.Bool            // the peer knows that the connection has ended, or was sent the message
	peerDoneOnce    sync.Once
	failureRecorded atomic.Bool    // this connection's failure is in Env.FirstFailure or came after it
	peerDone        chan struct{}  // closed when the peer has closed the connection, or is gone
	withdrawn       atomic.Uintptr // address of memory that was deregistered with a receive outstanding or a window open, or 0

	events eventQueue // about lanes in service

	mu             turn.Turn // guards all fields below, and those of Sender and Receiver; may be held while verbs take long
	lanes          []*lane.Lane
	domains        []lane.Domain
	traits         lane.Traits             // the strictest of all domains' traits
	peerDomains    int                     // number of the peer's domains
	domainsAdded   bool                    // a domain was added here or at the peer, so that older grants may lack its keys
	regions        map[*lane.Region]uint64 // each with its sequence number of registration
	registrations  uint64                  // sequence number of the last registration
	regionJoined   sync.Cond               // on mu; signalled when a joining domain has registered a region
	failover       failover.Lanes          // how far the failover of each lane has come
	drains         []*draining             // lanes that have failed and are not settled
	resumePending  bool                    // parts or grants are to be sent again
	lostSince      map[pathKey]time.Time   // when each path with fewer lanes than its target lost one
	target         map[pathKey]int         // for each path, the most lanes that were in service at one time
	flapRecords    map[pathKey]*flapRecord // of paths whose lanes have failed soon after they came back
	neverInService bool                    // all lanes of the first set-up failed, and no lane has been in service since
	confined       bool                    // lanes join only over paths of the first plan
	lastEpoch      uint32                  // epoch of the last Join; only the goroutine that calls Join uses it
	suspected      map[*lane.Lane]uint64   // Lane.Delivered of each suspected lane at its last suspicion
	outage         clock.Watch             // how long no lane has been in service, since a lane last carried data
	stalls         stalls

	requests      []Request // a receiver's are indexed by slot; a sender's end with its copies of eager messages
	pending       int       // number of requests that are not complete
	testing       *Request  // the request whose Test is polling; nil while none is
	freeTraces    []*Trace  // for reuse
	requestsBegun uint64    // counted while there is a watch
}

var _ lane.Owner = (*Conn)(nil)

// init initialises a connection without lanes. Its lanes report to sink.
func (c *Conn) init(env *Env, s *control.Session, id uint32, sending bool, sink lane.Sink) {
	c.Shared = lane.Shared{ID: id, Sending: sending, Session: s, Sink: sink, Owner: c}
	c.Count = new(stats.Conn)
	c.env, c.maxPollGap, c.peerDone = env, env.Clock.Scaled(pollGapLimit), make(chan struct{})
	c.regions, c.suspected = map[*lane.Region]uint64{}, map[*lane.Lane]uint64{}
	c.target, c.flapRecords, c.lostSince = map[pathKey]int{}, map[pathKey]*flapRecord{}, map[pathKey]time.Time{}
	c.events.wakeup = make(chan struct{}, 1)
	c.stalls.start = time.Now()
	c.regionJoined.L = &c.mu
	c.joinContext, c.cancelJoins = context.WithCancel(env.Context)
	c.firstSetup = newSetup(c, 0)
}

// Lock locks the connection. TryLock locks it if it is unlocked, and reports whether it did. Unlock unlocks
// it.
func (c *Conn) Lock()         { c.mu.Lock() }
func (c *Conn) TryLock() bool { return c.mu.TryLock() }
func (c *Conn) Unlock()       { c.mu.Unlock() }

// Lanes returns the lanes by index. The caller must not change the slice.
//
// Preconditions: c is locked.
func (c *Conn) Lanes() []*lane.Lane { return c.lanes }

// poll handles the completions and incoming data of every lane, checks for stalled lanes, and resends what a
// failed lane lost.
//
// Preconditions: c is locked.
func (c *Conn) poll() {
	receiving := c.mayReceive()
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
	if !c.traits.Polled { // with polled lanes C asks Go in every call
		c.board.NotePoll()
		return
	}
	c.flush(!c.expectsData())
}

// acknowledge sends delayed acknowledgements now.
//
// Preconditions: c is locked.
func (c *Conn) acknowledge() { c.flush(true) }

// flush sends what the domains hold back. idle says that no more data is expected, so that there is no use in
// waiting for it.
//
// Preconditions: c is locked.
func (c *Conn) flush(idle bool) {
	for _, d := range c.domains {
		d.Flush(idle)
	}
}

// pollAll polls every lane for data from a peer that has closed the connection, even if no receive is
// outstanding.
//
// Preconditions: c is locked.
func (c *Conn) pollAll() {
	for _, d := range c.domains {
		d.Poll(true)
	}
}

// expectsData reports whether a granted receive is incomplete, so that parts may arrive.
//
// Preconditions: c is locked.
func (c *Conn) expectsData() bool { return c.receiver != nil && c.receiver.granted > 0 }

// mayReceive reports whether parts may arrive: of a granted receive, or of a put into an open window.
//
// Preconditions: c is locked.
func (c *Conn) mayReceive() bool {
	return c.receiver != nil && (c.receiver.granted > 0 || len(c.receiver.windows.byID) > 0)
}

// resume sends lost parts or grants again, as far as the lanes have room. While some remain it sets
// resumePending, and poll or the event goroutine calls resume again.
//
// Preconditions: c is locked.
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

// Progress returns a number that changes whenever data moves. It may be called from any goroutine.
func (c *Conn) Progress() uint64 { return c.Count.Bytes.Value() + c.Count.Messages.Value() }

// summary returns the connection's counters as text for the log.
func (c *Conn) summary() string {
	n := c.Count
	text := fmt.Sprintf("%d messages, %d bytes, %d grants waited for", n.Messages.Value(), n.Bytes.Value(), n.Waits.Value())
	if n := n.Resent.Value(); n > 0 {
		text += fmt.Sprintf(", %d bytes sent again", n)
	}
	return text
}

// hasUnsent reports whether a request that is otherwise complete must wait, because a lane has yet to hand
// data to the kernel and only calls of Test make it do so: a receive is not reported done before the sender
// has its acknowledgement, nor an eager send before the kernel has the message.
//
// Preconditions: c is locked.
func (c *Conn) hasUnsent() bool {
	if !c.traits.Polled || c.Ended() != nil || c.expectsData() {
		return false
	}
	for _, l := range c.lanes {
		if l.Carrier.HasPendingOutput() {
			return true
		}
	}
	return false
}

// openBoard opens the board, which C reads. A probe has none, because it carries no messages.
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

// publishSources writes to the board which completion queues C may look at.
//
// Preconditions: c is locked.
func (c *Conn) publishSources() {
	sources := make([]*board.Source, len(c.domains))
	for i, d := range c.domains {
		sources[i] = d.Source()
	}
	c.board.SetSources(sources...)
}

// destroy closes all lanes and domains and releases all memory. If a lane cannot be closed, the domains and
// memory that it may use stay.
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

// Discard destroys a connection that nobody uses any more. It waits for lanes that are joining.
func (c *Conn) Discard() error {
	c.events.close()
	c.cancelJoins()
	c.joins.Wait()
	return c.env.LanePool.Do(c.destroy)
}

// Abort ends and destroys a connection whose set-up failed. It returns err, joined with errors of the
// clean-up.
func (c *Conn) Abort(err error) error {
	c.Fail(err)
	return errors.Join(err, c.Discard())
}

// guarded calls f and returns its error. A panic in f is logged as a panic in what and returned as an error.
func (c *Conn) guarded(what string, f func() error) error {
	return fault.Guarded(c.env.Log, what, f)
}
