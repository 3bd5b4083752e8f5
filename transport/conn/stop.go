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

// drainTime is how long a stopped lane may take to drain.
const drainTime = 2 * time.Second

// quiesce stops all lanes, waits until they have drained, and abandons all requests: afterwards no device
// uses the requests' buffers. A lane that cannot be stopped, or does not drain, is destroyed, which ends its
// access to memory too. quiesce returns an error if not even that is possible. The requests then still hold
// their buffers, and a later call tries again.
//
// Preconditions: c is locked and the connection has ended. quiesce unlocks c while it waits for the lanes and
// for other calls, and locks it again.
func (c *Conn) quiesce() error {
	c.mu.Unlock()
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	c.mu.Lock()
	return c.quiesceLocked()
}

// quiesceLocked is quiesce for a caller that has locked stopMu.
//
// Preconditions: c.stopMu and c are locked and the connection has ended. quiesceLocked unlocks c while the
// lanes drain, and locks it again.
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
	stopped := make([]*lane.Lane, 0, len(c.lanes))
	for _, l := range c.lanes {
		if l.State() == lane.Stopped {
			continue
		}
		l.Deactivate()
		if err := l.Carrier.Stop(); err != nil {
			destroy(l, err)
			continue
		}
		stopped = append(stopped, l)
	}
	for _, l := range c.awaitDrained(stopped) {
		destroy(l, errors.New("it did not drain"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	c.abandon()
	return nil
}

// awaitDrained waits until the lanes, which are stopped, have drained, for drainTime at most. It returns the
// lanes that have not.
//
// Preconditions: c is locked. awaitDrained unlocks c between checks, and locks it again.
func (c *Conn) awaitDrained(lanes []*lane.Lane) []*lane.Lane {
	deadline := time.Now().Add(c.env.Clock.Scaled(drainTime))
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		lanes = slices.DeleteFunc(lanes, func(l *lane.Lane) bool {
			if !l.Carrier.Drained() {
				return false
			}
			l.Enter(lane.Stopped)
			return true
		})
		if len(lanes) == 0 || time.Now().After(deadline) {
			return lanes
		}
		c.unlocked(func() { c.env.Clock.Sleep(wait) })
	}
}

// unlocked calls f with c unlocked.
//
// Preconditions: c is locked. It is locked again when unlocked returns.
func (c *Conn) unlocked(f func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	f()
}

// Close ends the connection from this side. It abandons outstanding requests and releases all registered
// memory. The lanes linger in the background until the peer closes too. Further calls wait for the first and
// do nothing.
func (c *Conn) Close() error {
	c.stopMu.Lock()
	c.mu.Lock()
	if !c.state.Enter(Closed) {
		c.mu.Unlock()
		c.stopMu.Unlock()
		return nil
	}
	c.board.Disable()
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
		if unsent { // the Bye must not overtake the data
			c.awaitDelivery()
			c.sendEnd(clean, why)
		}
		if clean && !over {
			wait := c.env.Clock.NewTimer(c.env.Clock.Scaled(lingerTime))
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

// finishRequests polls once more. If requests are still outstanding it ends the connection and stops the
// lanes. After it has returned without an error nothing uses a request's buffer. clean says that no request
// was outstanding.
//
// Preconditions: c.stopMu and c are locked. finishRequests unlocks c while lanes drain, and locks it again.
func (c *Conn) finishRequests() (clean bool, err error) {
	err = fault.Guarded(c.env.Log, c.String(), func() error {
		c.poll()
		if c.receiver != nil && c.receiver.standing {
			c.receiver.retract()
		}
		n := c.pending
		if clean = n == 0; clean {
			return nil
		}
		c.ending.CompareAndSwap(nil, &ending{Err: fmt.Errorf("%w: %v: closed with %d requests outstanding", fault.ErrUsage, c, n)})
		return c.quiesceLocked()
	})
	if errors.Is(err, fault.ErrInternal) { // for example because state is inconsistent after a panic
		clean = false
		c.ending.CompareAndSwap(nil, &ending{Err: err})
		err = c.closeLanes()
	}
	return clean, err
}

// closeLanes destroys all lanes. An error with one does not stop it from destroying the others.
//
// Preconditions: c is locked.
func (c *Conn) closeLanes() error {
	var errs []error
	for _, l := range c.lanes {
		l.Deactivate()
		errs = append(errs, fault.Guarded(c.env.Log, c.String(), l.Carrier.Close))
	}
	return errors.Join(errs...)
}

// sendEnd tells the peer that this side has closed the connection: cleanly, or why not.
func (c *Conn) sendEnd(clean bool, why error) {
	_ = c.Session.Send(c.endMessage(clean, why)) // an error means that the session is dead, which ends the connection at the peer too
}

// unsent returns how many bytes the peer's kernel has not acknowledged. At a receiver these are
// acknowledgements. At a sender without outstanding requests there are none.
//
// Preconditions: c is locked.
func (c *Conn) unsent() (n int) {
	for _, l := range c.lanes {
		n += l.Carrier.Unsent()
	}
	return n
}

// awaitDelivery waits until the peer's kernel has all data of this side. It returns early if the peer is
// gone, and lingerTime after the process begins to end.
func (c *Conn) awaitDelivery() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(c.env.Context, func() { c.env.Clock.AfterFunc(c.env.Clock.Scaled(lingerTime), cancel) })()
	c.AwaitSent(ctx)
}

// AwaitSent waits until the peer's kernel has all data of this side, the peer is gone, or ctx ends.
func (c *Conn) AwaitSent(ctx context.Context) {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		c.mu.Lock()
		unsent := c.unsent()
		c.mu.Unlock()
		if unsent == 0 {
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

// awaitAnswered waits until the peer's process has received all messages of the session, including the Bye,
// if a lane is relayed: otherwise a relay may report the end of the circuit first, which the peer would take
// for a failure. It waits for lingerTime at most.
func (c *Conn) awaitAnswered() {
	c.mu.Lock()
	relayed := slices.ContainsFunc(c.lanes, func(l *lane.Lane) bool { return l.Route != nil })
	c.mu.Unlock()
	if !relayed {
		return
	}
	timeout := c.env.Clock.Scaled(lingerTime)
	for start := time.Now(); c.Session.Alive() && c.Session.Unanswered() > 0 && time.Since(start) < timeout; {
		c.env.Clock.Sleep(time.Millisecond)
	}
}

// logSummary logs the counters of the connection and of each lane.
func (c *Conn) logSummary() {
	text := fmt.Sprintf("%v: closed after %s", c, c.summary())
	if failed := c.Count.Failures.Value(); failed > 0 {
		text += fmt.Sprintf(", lanes failed %s and were away for %v", plural(int(failed), "time"), time.Duration(c.Count.Outage.Value()).Round(time.Millisecond))
	}
	c.env.Log.Info(text)
	for _, l := range c.lanes {
		c.env.Log.Debug(fmt.Sprintf("%v: %v: %d parts, %d bytes", c, l, l.Parts.Value(), l.Bytes.Value()))
	}
}
