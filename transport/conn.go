package transport

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/control"
)

const (
	lingerTime = 2 * time.Second // how long queue pairs outlive a close, for a lost last ACK
	drainTime  = 2 * time.Second // how long a stopped queue pair may take to flush
)

// conn is what both halves of a connection have in common.
type conn struct {
	t       *Transport
	s       *control.Session
	id      uint32
	sending bool
	trial   bool                   // carries proofs only
	inbox   chan handshake.Message // set-up messages for the goroutine that sets up

	// Of the goroutine that sets up: whether the two processes run.
	clock clock
	late  time.Duration // longest that the peer has owed an answer on the session
	mute  bool          // a lane's proof was acknowledged and the peer sent none

	ending   atomic.Pointer[ending] // nil while the connection is not over
	peerTold atomic.Bool            // the peer needs no word about the end
	byeOnce  sync.Once
	bye      chan struct{} // closed when the peer's Bye, or its end, is known

	// mu guards everything below. The data path takes it with TryLock. It is held
	// while a stopped connection drains and while its queue pairs are destroyed,
	// which waits for their events: see Locks in the package's comment.
	mu       sync.Mutex
	closed   bool // by its owner
	mem      *ibv.Memory
	wire     wire
	wireBase uintptr
	devs     []*device
	lanes    []*lane
	sockets  []*socket // those of the lanes that are sockets
	peerBase uint64
	peerKeys [maxDevices]uint32
	regions  map[*Region]struct{}
	pending  int // requests not complete

	withdrawn atomic.Uintptr // memory that was deregistered with a receive outstanding, or 0

	half half
}

// half is what a send and a receive half make of their lanes' news.
type half interface {
	delivered(l *lane, request int)            // a part has reached the peer
	received(l *lane, imm uint32, size int64)  // a part has arrived
	failed(l *lane, request int, err error)    // a lane broke; request is what failed, or -1
	waiting() bool                             // parts may arrive
	recycle(r *Request)                        // a request is free again
	abandon()                                  // every outstanding request is over
	counters() (bytes, messages, waits uint64) // for the log
}

func newConn(t *Transport, s *control.Session, id uint32, sending bool) *conn {
	return &conn{
		t: t, s: s, id: id, sending: sending,
		inbox: make(chan handshake.Message, 4+maxParts), bye: make(chan struct{}),
		regions: map[*Region]struct{}{},
		clock:   clock{glance: t.opts.scaled(glance)},
	}
}

// String names the connection by both nodes, sender first.
func (c *conn) String() string {
	from, to := c.s.LocalName(), c.s.Name()
	if !c.sending {
		from, to = to, from
	}
	return fmt.Sprintf("%s -> %s conn %d", from, to, c.id)
}

// asyncFailure handles an event that says a queue pair broke.
func (c *conn) asyncFailure(l *lane, event string) {
	c.fail(c.blame(fmt.Errorf("%w: %v: %v: the queue pair failed: %s", ErrLane, c, l, event)))
}

// poll takes the news from every lane that may have some.
//
// Preconditions: c.mu is held.
func (c *conn) poll() {
	receiving := c.half.waiting()
	for _, d := range c.devs {
		if d.sends > 0 || receiving {
			c.pollDevice(d)
		}
	}
	c.pollSockets(receiving)
}

// quiesce stops all lanes and waits until they have flushed: afterwards no device
// touches a buffer of the connection's requests. A queue pair that cannot be
// stopped, or does not drain, is destroyed, which ends all access through it too.
// The error says that not even that could be done: the requests then keep their
// hold on their buffers, and a later call tries again.
//
// Preconditions: c.mu is held and the connection has ended.
func (c *conn) quiesce() error {
	var errs []error
	destroy := func(l *lane, why error) {
		if err := l.close(); err != nil {
			errs = append(errs, fmt.Errorf("%v: %v can neither be stopped nor destroyed and may still be used: %w; %w", c, l, why, err))
			return
		}
		l.reason = reasonStopped
		c.t.log.Debug("a lane was destroyed to stop it", "conn", c.String(), "lane", l.String(), "err", why)
	}
	left := make([]*lane, 0, len(c.lanes))
	for _, l := range c.lanes {
		if l.reason == reasonStopped {
			continue
		}
		l.up = false
		if err := l.stop(); err != nil {
			destroy(l, err)
			continue
		}
		left = append(left, l)
	}
	deadline := time.Now().Add(c.t.opts.scaled(drainTime))
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		left = slices.DeleteFunc(left, func(l *lane) bool {
			if !l.drained() {
				return false
			}
			l.reason = reasonStopped
			return true
		})
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(wait)
	}
	for _, l := range left {
		destroy(l, errors.New("it did not drain"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	c.half.abandon()
	return nil
}

// reasonStopped is why a lane of an ended connection is not in service.
const reasonStopped = "stopped"

// Close ends the connection from this side. Outstanding requests are abandoned,
// memory still registered is released. Queue pairs linger in the background
// until the peer closes too.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	clean, err := c.settle()
	if err == nil {
		err = c.dropAll()
	}
	over, why := c.peerTold.Swap(true), c.ended()
	c.mu.Unlock()
	c.logCounters()
	if len(c.sockets) == 0 {
		c.sayEnd(clean, why)
	}
	c.t.background(func() {
		if len(c.sockets) > 0 {
			if clean && !over {
				c.awaitDelivery()
			}
			c.sayEnd(clean, why)
		}
		if clean && !over {
			wait := time.NewTimer(c.t.opts.scaled(lingerTime))
			defer wait.Stop()
			select {
			case <-c.bye:
			case <-wait.C:
			case <-c.t.closing:
			}
		}
		if err := c.t.making.do(c.destroy); err != nil {
			c.t.log.Warn("closing a connection left something behind", "conn", c.String(), "err", err)
		}
	})
	return err
}

// settle takes the last news. When there are requests all the same it stops the
// lanes: nothing uses a buffer once it has returned without an error.
//
// Preconditions: c.mu is held.
func (c *conn) settle() (clean bool, err error) {
	err = c.t.guarded(c.String(), func() error {
		c.poll()
		if clean = c.pending == 0; clean {
			return nil
		}
		c.ending.CompareAndSwap(nil, &ending{err: fmt.Errorf("%w: %v: closed with %d requests outstanding", ErrUsage, c, c.pending)})
		return c.quiesce()
	})
	if errors.Is(err, ErrInternal) { // as when a call of NCCL had panicked before
		clean = false
		c.ending.CompareAndSwap(nil, &ending{err: err})
		err = c.closeLanes()
	}
	return clean, err
}

// closeLanes destroys all lanes, each whatever becomes of the others.
//
// Preconditions: c.mu is held.
func (c *conn) closeLanes() error {
	var errs []error
	for _, l := range c.lanes {
		l.up = false
		errs = append(errs, c.t.guarded(c.String(), l.close))
	}
	return errors.Join(errs...)
}

// sayEnd tells the peer that this side has closed: in good order, or why not.
func (c *conn) sayEnd(clean bool, why error) {
	var m handshake.Message = &handshake.Bye{Conn: c.id}
	if !clean {
		m = &handshake.Refuse{Conn: c.id, Text: clip(why.Error(), 500)}
	}
	_ = c.s.Send(m) // a dead session needs none
}

// destroy gives back all verbs objects and memory; while a lane cannot be, what it
// may use stays.
func (c *conn) destroy() error {
	c.t.forget(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closeLanes(); err != nil {
		return err
	}
	errs := []error{c.dropAll()}
	for _, d := range c.devs {
		errs = append(errs, d.close())
	}
	c.lanes, c.devs, c.sockets = nil, nil, nil
	if c.mem != nil {
		errs = append(errs, c.mem.Free())
		c.mem = nil
	}
	return errors.Join(errs...)
}

// logCounters writes the connection's line of figures.
func (c *conn) logCounters() {
	bytes, messages, waits := c.half.counters()
	c.t.log.Info(fmt.Sprintf("%v: closed after %d messages, %d bytes, %d grants waited for", c, messages, bytes, waits))
	for _, l := range c.lanes {
		c.t.log.Debug(fmt.Sprintf("%v: %v: %d parts, %d bytes", c, l, l.messages, l.bytes))
	}
}
