package engine

import (
	"errors"
	"time"
)

// drainTime is how long queue pairs in ERR may take to be flushed, before they are
// destroyed all the same.
const drainTime = 2 * time.Second

// look has the thread take down what is to be.
func (e *Engine) look() {
	e.ending.Store(true)
	e.wake()
}

// lower takes a circuit that is to come down as far as it goes, and reports whether it is
// not down yet. It stops and destroys queue pairs, which may take long, without the mutex:
// nobody but the thread uses them any more, as Connect does not begin on a circuit that was
// dropped.
func (j *joint) lower() (waiting bool) {
	j.mu.Lock()
	dropped, busy := j.dropped != nil, j.busy
	j.mu.Unlock()
	switch {
	case !dropped:
		return false
	case busy:
		return true
	case j.stopped.IsZero():
		j.stopped = time.Now()
		for i := range j.sides {
			if err := j.sides[i].Stop(); err != nil {
				j.stopped = j.stopped.Add(-drainTime) // destroying it is what is left
			}
		}
		return true
	case !(j.sides[before].Drained() && j.sides[behind].Drained()) && time.Since(j.stopped) < drainTime:
		return true
	}
	if err := j.destroy(); err != nil {
		j.engine.cfg.Log.Warn("a circuit that was relayed did not come down", "err", err)
		return true
	}
	return false
}

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
