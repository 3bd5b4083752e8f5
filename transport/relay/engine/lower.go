package engine

import (
	"errors"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/fault"
)

const (
	// drainTime is how long queue pairs in ERR may take to be flushed, before they are destroyed all the same.
	drainTime = 2 * time.Second

	// lowerers is how many threads stop and destroy what circuits have.
	lowerers = 8

	// What cannot be destroyed is tried again after a pause, which grows.
	shortestPause, longestPause = 10 * time.Millisecond, time.Second
)

// beginToLower starts the goroutine that takes a dropped circuit down, once. Stopping and destroying a queue pair may take long,
// and the thread serves other circuits meanwhile. While Connect is at work nothing is started: Connect calls it at its end.
// Preconditions: j.mu is locked.
func (j *joint) beginToLower() {
	if j.dropped == nil || j.busy || j.lowering {
		return
	}
	j.lowering = true
	go guard.Run(j.lower, func(g *guard.Panic) { fault.Panicked(j.engine.cfg.Log, "a circuit's end", g) })
}

// lower takes a circuit down: it stops both queue pairs, waits until the thread has polled what they flush, and gives back what
// the circuit has. Nobody else uses a queue pair of a circuit that was dropped.
func (j *joint) lower() {
	e := j.engine
	err := e.lowerers.Do(func() error {
		var errs []error
		for i := range j.sides {
			errs = append(errs, j.sides[i].Stop())
		}
		return errors.Join(errs...)
	})
	if err == nil && !j.setStopped() { // what could not be stopped is destroyed at once
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

// setStopped notes that both queue pairs are in ERR, and reports whether all that they flush was polled.
func (j *joint) setStopped() (drained bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	return j.rests()
}

// rests reports whether everything that was posted to both queue pairs was polled.
// Preconditions: j.mu is locked.
func (j *joint) rests() bool { return j.sides[before].Drained() && j.sides[behind].Drained() }

// destroy gives everything back. It may be called again after an error.
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
		return err // and an adapter may use the memory yet
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
