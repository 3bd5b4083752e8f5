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
	lowerers = 8

	// Pauses between attempts to destroy a circuit after an error; they grow.
	shortestPause, longestPause = 10 * time.Millisecond, time.Second
)

// startTeardown starts the goroutine that tears down a dropped circuit, once. A separate goroutine is needed because
// stopping and destroying a queue pair may take long, and the thread serves other circuits meanwhile. While Connect
// runs it starts nothing; Connect calls it at its end. Preconditions: c.mu is locked.
func (j *joint) beginToLower() {
	if j.dropped == nil || j.busy || j.lowering {
		return
	}
	j.lowering = true
	go guard.Run(j.lower, func(g *guard.Panic) { fault.Panicked(j.engine.cfg.Log, "a circuit's end", g) })
}

// teardown tears down a circuit: it stops both queue pairs, waits until the thread has polled what they flush, and
// releases the circuit's resources. No other goroutine uses the queue pairs of a dropped circuit.
func (j *joint) lower() {
	e := j.engine
	err := e.lowerers.Do(func() error {
		var errs []error
		for i := range j.sides {
			errs = append(errs, j.sides[i].Stop())
		}
		return errors.Join(errs...)
	})
	if err == nil && !j.setStopped() { // a queue pair that could not be stopped is destroyed at once
		late := e.cfg.Clock.NewTimer(drainTime)
		select {
		case <-j.drained:
		case <-late.C:
		}
		late.Stop()
	}
	j.mu.Lock()
	j.down = true
	j.mu.Unlock()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := e.lowerers.Do(j.destroy)
		if err == nil {
			return
		}
		if pause == shortestPause {
			e.cfg.Log.Warn("a circuit that was relayed did not come down; it is tried again until the process ends", "err", err)
		}
		select {
		case <-e.cfg.Clock.After(pause):
		case <-e.closed:
			return
		}
	}
}

// setStopped records that both queue pairs are in ERR, and reports whether all that they flush was polled.
func (j *joint) setStopped() (drained bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	return j.rests()
}

// allPolled reports whether everything that was posted to both queue pairs was polled. Preconditions: c.mu is locked.
func (j *joint) rests() bool { return j.sides[before].Drained() && j.sides[behind].Drained() }

// destroy releases all resources. It may be called again after an error.
func (j *joint) destroy() error {
	var errs []error
	for i := range j.sides {
		s := &j.sides[i]
		if s.Half != nil {
			if err := s.Half.Close(); err != nil {
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
	if j.mem != nil {
		if err := j.mem.Free(); err != nil {
			return err
		}
	}
	for i := range j.sides {
		if q := j.sides[i].queue; q != nil {
			j.engine.leaveQueue(q)
		}
	}
	j.engine.free(j.slot, j.ring)
	return nil
}
