package bundle

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

// Quiesce stops all lanes and waits until they have come to rest: afterwards no
// device touches a buffer of the connection's requests, and those are abandoned. A
// lane that cannot be stopped, or does not rest, is destroyed, which ends all access
// through it too. The error says that not even that could be done: the requests then
// keep their hold on their buffers, and a later call tries again.
//
// Preconditions: b is locked and the connection has ended. Quiesce unlocks b while it
// waits, for the lanes and for another call of it, and locks b again.
func (b *Bundle) Quiesce() error {
	b.mu.Unlock()
	b.stopping.Lock()
	defer b.stopping.Unlock()
	b.mu.Lock()
	return b.quiesce()
}

// quiesce is Quiesce for one who holds b.stopping.
//
// Preconditions: b.stopping and b are locked and the connection has ended. quiesce
// unlocks b while the lanes come to rest, and locks b again.
func (b *Bundle) quiesce() error {
	b.quiet = true
	var errs []error
	destroy := func(l *lane.Lane, why error) {
		if err := l.Carrier.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%v: %v can neither be stopped nor destroyed and may still be used: %w; %w", b, l, why, err))
			return
		}
		l.Enter(lane.Stopped)
		b.env.Log.Debug("a lane was destroyed to stop it", "conn", b.String(), "lane", l.String(), "err", why)
	}
	left := make([]*lane.Lane, 0, len(b.lanes))
	for _, l := range b.lanes {
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
	for _, l := range b.drain(left) {
		destroy(l, errors.New("it did not drain"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	b.half.Abandon()
	return nil
}

// drain waits for stopped lanes to come to rest and returns those that do not.
//
// Preconditions: b is locked. drain unlocks b between two looks, and locks b again.
func (b *Bundle) drain(left []*lane.Lane) []*lane.Lane {
	deadline := time.Now().Add(b.env.Scaled(drainTime))
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
		b.unlocked(func() { b.env.Clock.Sleep(wait) })
	}
}

// unlocked calls f without the lock.
//
// Preconditions: b is locked, and it is again after.
func (b *Bundle) unlocked(f func()) {
	b.mu.Unlock()
	defer b.mu.Lock()
	f()
}

// Close ends the connection from this side. Outstanding requests are abandoned,
// memory still registered is released. Lanes linger in the background until the peer
// closes too. It may be called again: a call waits for one that has come before.
func (b *Bundle) Close() error {
	b.stopping.Lock()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.stopping.Unlock()
		return nil
	}
	b.closed = true
	b.Board.ComeIn()
	clean, err := b.settle()
	if err == nil {
		err = b.dropAll()
	}
	over, why := b.peerTold.Swap(true), b.Ended()
	unsent := clean && !over && b.unsent() > 0
	b.logFigures()
	b.mu.Unlock()
	b.stopping.Unlock()
	if !unsent {
		b.sayEnd(clean, why)
	}
	b.env.Background(func() {
		if unsent { // a Bye must not overtake it
			b.awaitDelivery()
			b.sayEnd(clean, why)
		}
		if clean && !over {
			wait := b.env.Clock.NewTimer(b.env.Scaled(lingerTime))
			defer wait.Stop()
			select {
			case <-b.bye:
			case <-wait.C:
			case <-b.env.Context.Done():
				b.awaitHeard()
			}
		}
		if err := b.Discard(); err != nil {
			b.env.Log.Warn("closing a connection left something behind", "conn", b.String(), "err", err)
		}
	})
	return err
}

// settle takes the last news. When there are requests all the same it stops the
// lanes: nothing uses a buffer once it has returned without an error.
//
// Preconditions: b.stopping and b are locked. settle unlocks b while lanes come to rest,
// and locks b again.
func (b *Bundle) settle() (clean bool, err error) {
	err = fault.Guarded(b.env.Log, b.String(), func() error {
		b.Poll()
		n := b.half.Outstanding()
		if clean = n == 0; clean {
			return nil
		}
		b.ending.CompareAndSwap(nil, &Ending{Err: fmt.Errorf("%w: %v: closed with %d requests outstanding", fault.ErrUsage, b, n)})
		return b.quiesce()
	})
	if errors.Is(err, fault.ErrInternal) { // as when a call of NCCL had panicked before
		clean = false
		b.ending.CompareAndSwap(nil, &Ending{Err: err})
		err = b.closeLanes()
	}
	return clean, err
}

// closeLanes destroys all lanes, each whatever becomes of the others.
//
// Preconditions: b is locked.
func (b *Bundle) closeLanes() error {
	var errs []error
	for _, l := range b.lanes {
		l.Rest()
		errs = append(errs, fault.Guarded(b.env.Log, b.String(), l.Carrier.Close))
	}
	return errors.Join(errs...)
}

// sayEnd tells the peer that this side has closed: in good order, or why not.
func (b *Bundle) sayEnd(clean bool, why error) {
	_ = b.Session.Send(b.endMessage(clean, why)) // a dead session needs none
}

// unsent is how many bytes wait for the peer's kernel: of a receiver its
// acknowledgements; a sender has had them all.
//
// Preconditions: b is locked.
func (b *Bundle) unsent() (n int) {
	for _, l := range b.lanes {
		n += l.Carrier.Unsent()
	}
	return n
}

// awaitDelivery waits until the peer's kernel has everything that this side has
// sent. It gives up when the peer is gone, and soon once the process ends.
func (b *Bundle) awaitDelivery() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(b.env.Context, func() { b.env.Clock.AfterFunc(b.env.Scaled(lingerTime), cancel) })()
	b.AwaitSent(ctx)
}

// AwaitSent waits until the peer's kernel has everything that this side has sent, the peer
// is gone, or ctx ends.
func (b *Bundle) AwaitSent(ctx context.Context) {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		b.mu.Lock()
		left := b.unsent()
		b.mu.Unlock()
		if left == 0 {
			return
		}
		next := b.env.Clock.NewTimer(wait)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		case <-b.bye:
			next.Stop()
			return
		}
	}
}

// awaitHeard waits until the peer's process has what the session has sent, the Bye among it:
// the relays tell it of the end of their circuits, and would tell it first of what it would
// take for a failure. It gives up soon.
func (b *Bundle) awaitHeard() {
	b.mu.Lock()
	relayed := slices.ContainsFunc(b.lanes, func(l *lane.Lane) bool { return l.Route != nil })
	b.mu.Unlock()
	if !relayed {
		return
	}
	patience := b.env.Scaled(lingerTime)
	for begun := time.Now(); b.Session.Alive() && b.Session.Unanswered() > 0 && time.Since(begun) < patience; {
		b.env.Clock.Sleep(time.Millisecond)
	}
}

// logFigures writes the connection's lines of figures.
func (b *Bundle) logFigures() {
	text := fmt.Sprintf("%v: closed after %v", b, b.half)
	if failed := b.Count.Failures.Value(); failed > 0 {
		text += fmt.Sprintf(", lanes failed %s and were away for %v", count(int(failed), "time"), time.Duration(b.Count.Away.Value()).Round(time.Millisecond))
	}
	b.env.Log.Info(text)
	for _, l := range b.lanes {
		b.env.Log.Debug(fmt.Sprintf("%v: %v: %d parts, %d bytes", b, l, l.Parts.Value(), l.Bytes.Value()))
	}
}
