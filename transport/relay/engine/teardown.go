package engine

import (
	"errors"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/fault"
)

const (
	// drainTime is how long queue pairs in ERR may take to be flushed. After that they are destroyed anyway.
	drainTime = 2 * time.Second

	// destroyers is how many threads stop and destroy verbs objects.
	destroyers = 8

	// Pauses between attempts to destroy a circuit after an error; they grow.
	shortestPause, longestPause = 10 * time.Millisecond, time.Second
)

// startTeardown starts the goroutine that tears down a dropped circuit, once. A separate goroutine is needed because
// stopping and destroying a queue pair may take long, and the thread serves other circuits meanwhile. While Connect
// runs it starts nothing; Connect calls it at its end. Preconditions: c.mu is locked.
func (c *circuit) startTeardown() {
	if c.dropped == nil || c.inConnect || c.tearingDown {
		return
	}
	c.tearingDown = true
	go guard.Run(c.teardown, func(g *guard.Panic) { fault.Panicked(c.forwarder.cfg.Log, "a circuit's end", g) })
}

// teardown tears down a circuit: it stops both queue pairs, waits until the thread has polled what they flush, and
// releases the circuit's resources. No other goroutine uses the queue pairs of a dropped circuit.
func (c *circuit) teardown() {
	f := c.forwarder
	err := f.destroyers.Do(func() error {
		var errs []error
		for i := range c.sides {
			errs = append(errs, c.sides[i].Stop())
		}
		return errors.Join(errs...)
	})
	if err == nil && !c.setStopped() { // a queue pair that could not be stopped is destroyed at once
		late := f.cfg.Clock.NewTimer(drainTime)
		select {
		case <-c.drained:
		case <-late.C:
		}
		late.Stop()
	}
	c.mu.Lock()
	c.destroyed = true
	c.mu.Unlock()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := f.destroyers.Do(c.destroy)
		if err == nil {
			return
		}
		if pause == shortestPause {
			f.cfg.Log.Warn("a circuit that was relayed did not come down; it is tried again until the process ends", "err", err)
		}
		select {
		case <-f.cfg.Clock.After(pause):
		case <-f.closed:
			return
		}
	}
}

// setStopped records that both queue pairs are in ERR, and reports whether all that they flush was polled.
func (c *circuit) setStopped() (drained bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	return c.allPolled()
}

// allPolled reports whether everything that was posted to both queue pairs was polled. Preconditions: c.mu is locked.
func (c *circuit) allPolled() bool {
	return c.sides[towardsSender].Drained() && c.sides[towardsReceiver].Drained()
}

// destroy releases all resources. It may be called again after an error.
func (c *circuit) destroy() error {
	var errs []error
	for i := range c.sides {
		s := &c.sides[i]
		if s.Endpoint != nil {
			if err := s.Endpoint.Close(); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		for _, mr := range s.mrs {
			errs = append(errs, mr.Close())
		}
		if s.pd != nil {
			errs = append(errs, s.pd.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // an adapter may still use the memory
	}
	if c.mem != nil {
		if err := c.mem.Free(); err != nil {
			return err
		}
	}
	for i := range c.sides {
		if q := c.sides[i].queue; q != nil {
			c.forwarder.releaseQueue(q)
		}
	}
	c.forwarder.release(c.slot, c.ring)
	return nil
}
