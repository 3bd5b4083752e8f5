package comm

import (
	"fmt"
	"sync/atomic"
	"time"

	"ncclmesh/transport/onesided"
)

// How long a call that waits pauses between two polls, at most.
const (
	longestPause      = 500 * time.Microsecond
	longestFlushPause = 100 * time.Microsecond // while requests of this process are outstanding, because lanes may need polls to complete them
)

// Forever is a time-out that never passes.
const Forever time.Duration = -1

// await is awaitWithin with pauses of any length.
func (c *Comm) await(timeout time.Duration, what func() string, done func() (bool, error)) error {
	return c.awaitWithin(longestPause, timeout, what, done)
}

// awaitWithin polls until done returns true or an error, the Comm is closed, or the time-out has passed. what names the thing that it
// waits for, and longest is the longest pause.
func (c *Comm) awaitWithin(longest, timeout time.Duration, what func() string, done func() (bool, error)) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if ok, err := done(); ok || err != nil {
		return err
	}
	begun := time.Now()
	for pace := c.newPace(longest); ; pace.Wait() {
		if c.move() {
			pace.Shorten()
		}
		switch ok, err := done(); {
		case ok || err != nil:
			return err
		case timeout >= 0 && time.Since(begun) >= timeout:
			return fmt.Errorf("%w: %s within %v", ErrTimeout, what(), timeout)
		}
		if err := c.usable(); err != nil {
			return err
		}
	}
}

// awaitWord waits until a word is at least want. It fails with the error that lost returns, unless the signal came before the loss.
func (c *Comm) awaitWord(word *atomic.Uint64, want uint64, timeout time.Duration, what func() string, lost func() error) error {
	return c.await(timeout, what, func() (bool, error) {
		if word.Load() >= want {
			return true, nil
		}
		err := lost()
		if err != nil && word.Load() >= want {
			return true, nil
		}
		return false, err
	})
}

// move makes progress for a call, so that the goroutine that otherwise does so stays out of its way.
func (c *Comm) move() (moved bool) {
	c.polls.Add(1)
	return c.space.Progress()
}

// pollEvery is how many requests to a peer are between two that make progress. A program that goes on to make requests does not wait for the
// goroutine that makes progress.
const pollEvery = 16

// begin makes a request, and tries again while too many are outstanding.
func (c *Comm) begin(request func() (onesided.Op, error)) (onesided.Op, error) {
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.leave()
	op, err := request()
	if op == 0 && err == nil {
		err = c.awaitWithin(longestFlushPause, Forever, nil, func() (bool, error) {
			var err error
			op, err = request()
			return op != 0, err
		})
	}
	c.busy.Store(true)
	if op%pollEvery == 0 && op > 0 {
		c.move()
	}
	return op, err
}

// flush waits until all requests to a peer that were made before are done.
func (c *Comm) flush(peer *onesided.Peer, timeout time.Duration, what func() string) error {
	op, err := c.begin(peer.Flush)
	if err != nil {
		return err
	}
	return c.awaitWithin(longestFlushPause, timeout, what, func() (bool, error) { return peer.Done(op) })
}
