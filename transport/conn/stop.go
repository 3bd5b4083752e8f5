package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// drainTime is how long a stopped lane may take to come to rest.
const drainTime = 2 * time.Second

// quiesce stops all lanes and waits until they have come to rest: afterwards no
// device touches a buffer of the connection's requests, and those are abandoned. A
// lane that cannot be stopped, or does not rest, is destroyed, which ends all access
// through it too. The error says that not even that could be done: the requests then
// keep their hold on their buffers, and a later call tries again.
//
// Preconditions: c is locked and the connection has ended. Quiesce unlocks c while it
// waits, for the lanes and for another call of it, and locks c again.
func (c *Conn) quiesce() error {
	c.mu.Unlock()
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	c.mu.Lock()
	return c.quiesceLocked()
}

// quiesceHeld is Quiesce for one who holds c.stopping.
//
// Preconditions: c.stopping and c are locked and the connection has ended. quiesce
// unlocks c while the lanes come to rest, and locks c again.
func (c *Conn) quiesceLocked() error {
	c.state.Enter(Stopped)
	var errs []error
	destroy := func(l *lane.Lane, why error) {
		if err := l.Carrier.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%v: %v can neither be stopped nor destroyed and may still be used: %w; %w", c, l, why, err))
			return
		}
		l.Enter(lane.Stopped)
		c.env.Log.Debug("a lane was destroyed to stop it", "conn", c.String(), "lane", l.String(), "err", why)
	}
	left := make([]*lane.Lane, 0, len(c.lanes))
	for _, l := range c.lanes {
		if l.State() == lane.Stopped {
			continue
		}
		l.Rest()
		if err := l.Carrier.Stop(); err != nil {
			destroy(l, err)
			continue
		}
		left = append(left, l)
	}
	for _, l := range c.awaitDrained(left) {
		destroy(l, errors.New("it did not drain"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	c.abandon()
	return nil
}

// drain waits for stopped lanes to come to rest and returns those that do not.
//
// Preconditions: c is locked. drain unlocks c between two looks, and locks c again.
func (c *Conn) awaitDrained(left []*lane.Lane) []*lane.Lane {
	deadline := time.Now().Add(c.env.Scaled(drainTime))
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		left = slices.DeleteFunc(left, func(l *lane.Lane) bool {
			if !l.Carrier.Drained() {
				return false
			}
			l.Enter(lane.Stopped)
			return true
		})
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		c.unlocked(func() { c.env.Clock.Sleep(wait) })
	}
}

// unlocked calls f without the lock.
//
// Preconditions: c is locked, and it is again after.
func (c *Conn) unlocked(f func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	f()
}

// Close ends the connection from this side. Outstanding requests are abandoned,
// memory still registered is released. Lanes linger in the background until the peer
// closes too. It may be called again: a call waits for one that has come before.
func (c *Conn) Close() error {
	c.stopMu.Lock()
	c.mu.Lock()
	if !c.state.Enter(Closed) {
		c.mu.Unlock()
		c.stopMu.Unlock()
		return nil
	}
	c.board.ComeIn()
	clean, err := c.finishRequests()
	if err == nil {
		err = c.removeRegions()
	}
	over, why := c.peerNotified.Swap(true), c.Ended()
	unsent := clean && !over && c.unsent() > 0
	c.logSummary()
	c.mu.Unlock()
	c.stopMu.Unlock()
	if !unsent {
		c.sendEnd(clean, why)
	}
	c.env.Background(func() {
		if unsent { // a Bye must not overtake it
			c.awaitDelivery()
			c.sendEnd(clean, why)
		}
		if clean && !over {
			wait := c.env.Clock.NewTimer(c.env.Scaled(lingerTime))
			defer wait.Stop()
			select {
			case <-c.peerDone:
			case <-wait.C:
			case <-c.env.Context.Done():
				c.awaitAnswered()
			}
		}
		if err := c.Discard(); err != nil {
			c.env.Log.Warn("closing a connection left something behind", "conn", c.String(), "err", err)
		}
	})
	return err
}

// finishRequests takes the last news. When there are requests all the same it stops the
// lanes: nothing uses a buffer once it has returned without an error.
//
// Preconditions: c.stopping and c are locked. settle unlocks c while lanes come to rest,
// and locks c again.
func (c *Conn) finishRequests() (clean bool, err error) {
	err = fault.Guarded(c.env.Log, c.String(), func() error {
		c.poll()
		n := c.pending
		if clean = n == 0; clean {
			return nil
		}
		c.ending.CompareAndSwap(nil, &ending{Err: fmt.Errorf("%w: %v: closed with %d requests outstanding", fault.ErrUsage, c, n)})
		return c.quiesceLocked()
	})
	if errors.Is(err, fault.ErrInternal) { // as when a call of NCCL had panicked before
		clean = false
		c.ending.CompareAndSwap(nil, &ending{Err: err})
		err = c.closeLanes()
	}
	return clean, err
}

// closeLanes destroys all lanes, each whatever becomes of the others.
//
// Preconditions: c is locked.
func (c *Conn) closeLanes() error {
	var errs []error
	for _, l := range c.lanes {
		l.Rest()
		errs = append(errs, fault.Guarded(c.env.Log, c.String(), l.Carrier.Close))
	}
	return errors.Join(errs...)
}

// sayEnd tells the peer that this side has closed: in good order, or why not.
func (c *Conn) sendEnd(clean bool, why error) {
	_ = c.Session.Send(c.endMessage(clean, why)) // a dead session needs none
}

// unsent is how many bytes wait for the peer's kernel: of a receiver its
// acknowledgements; a sender has had them all.
//
// Preconditions: c is locked.
func (c *Conn) unsent() (n int) {
	for _, l := range c.lanes {
		n += l.Carrier.Unsent()
	}
	return n
}

// awaitDelivery waits until the peer's kernel has everything that this side has
// sent. It gives up when the peer is gone, and soon once the process ends.
func (c *Conn) awaitDelivery() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(c.env.Context, func() { c.env.Clock.AfterFunc(c.env.Scaled(lingerTime), cancel) })()
	c.AwaitSent(ctx)
}

// AwaitSent waits until the peer's kernel has everything that this side has sent, the peer
// is gone, or ctx ends.
func (c *Conn) AwaitSent(ctx context.Context) {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		c.mu.Lock()
		left := c.unsent()
		c.mu.Unlock()
		if left == 0 {
			return
		}
		next := c.env.Clock.NewTimer(wait)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		case <-c.peerDone:
			next.Stop()
			return
		}
	}
}

// awaitHeard waits until the peer's process has what the session has sent, the Bye among it:
// the relays tell it of the end of their circuits, and would tell it first of what it would
// take for a failure. It gives up soon.
func (c *Conn) awaitAnswered() {
	c.mu.Lock()
	relayed := slices.ContainsFunc(c.lanes, func(l *lane.Lane) bool { return l.Route != nil })
	c.mu.Unlock()
	if !relayed {
		return
	}
	patience := c.env.Scaled(lingerTime)
	for begun := time.Now(); c.Session.Alive() && c.Session.Unanswered() > 0 && time.Since(begun) < patience; {
		c.env.Clock.Sleep(time.Millisecond)
	}
}

// logFigures writes the connection's lines of figures.
func (c *Conn) logSummary() {
	text := fmt.Sprintf("%v: closed after %s", c, c.summary())
	if failed := c.Count.Failures.Value(); failed > 0 {
		text += fmt.Sprintf(", lanes failed %s and were away for %v", plural(int(failed), "time"), time.Duration(c.Count.Away.Value()).Round(time.Millisecond))
	}
	c.env.Log.Info(text)
	for _, l := range c.lanes {
		c.env.Log.Debug(fmt.Sprintf("%v: %v: %d parts, %d bytes", c, l, l.Parts.Value(), l.Bytes.Value()))
	}
}
