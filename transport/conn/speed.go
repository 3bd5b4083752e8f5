package conn

import (
	"ncclmesh/transport/lane"
)

const (
	remeasureEvery = 64                      // messages that are cut, after which a lane that has become slow has a part
	remeasureSize  = 5 * lane.Measurable / 4 // of it at least, rounded as it may be
)

// measured reports whether a lane's speed is: of a passive one the peer's process would be
// measured with it.
func (s *Sender) measured(l *lane.Lane) bool {
	return len(s.lanes) > 1 && !l.Port.Traits().Polled
}

// start notes that a part of size bytes is posted on an idle lane.
func (s *Sender) startMeasure(l *lane.Lane, size int) {
	if size < lane.Measurable {
		l.Begin(0)
		return
	}
	if l.Begin(s.now()) {
		lane.Compare(s.lanes)
	}
}

// measure notes that a part was found delivered, and reports whether that said something.
func (s *Sender) measure(l *lane.Lane, size int) bool {
	if size < lane.Measurable { // no time is wanted
		return l.Measure(0, 0, size)
	}
	now, gap := s.lastPoll()
	return l.Measure(now, gap, size)
}

// probe has each lane that has become slow get a part now and then that tells its speed.
func (s *Sender) remeasure(size int) {
	if s.cutCount++; s.cutCount%remeasureEvery != 0 {
		return
	}
	rate, lanes := 0.0, s.lanes
	for i := range lanes {
		rate += s.shares[i].weight
	}
	part := min(float64(remeasureSize)/float64(size), 0.5)
	for i, l := range lanes {
		if q := &s.shares[i]; q.weight > 0 && l.Slow() {
			q.weight = max(q.weight, (rate-q.weight)*part/(1-part))
			q.backlog = 0
		}
		l.Forget()
	}
	lane.Compare(lanes)
}

// waits says for each lane, by index, which message was posted first of those of which a part is under way on it; 0 is none. It
// scans what is outstanding, and is asked for now and then.
func (s *Sender) oldestInFlight(first *[lane.MaxParts]uint64) {
	for i := range s.requests {
		req := &s.requests[i]
		if !req.active || req.done {
			continue
		}
		q := req.sent
		for k := range int(q.last) + 1 {
			f := &first[q.lanes[k]]
			if bit := uint32(1) << k; req.remaining&^q.lost&bit != 0 && (*f == 0 || q.number < *f) {
				*f = q.number
			}
		}
	}
}
