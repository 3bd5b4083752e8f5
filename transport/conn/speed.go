package conn

import (
	"ncclmesh/transport/lane"
)

const (
	remeasureEvery = 64                      // split messages after which each slow lane gets a part to measure it with
	remeasureSize  = 5 * lane.Measurable / 4 // bytes of that part: lane.Measurable even after rounding
)

// measured reports whether the speed of a lane is measured. It is not if the lane is polled, because the
// measurement would include the peer's process.
func (s *Sender) measured(l *lane.Lane) bool {
	return len(s.lanes) > 1 && !l.Port.Traits().Polled
}

// startMeasure notes that a part of size bytes is posted on an idle lane.
func (s *Sender) startMeasure(l *lane.Lane, size int) {
	if size < lane.Measurable {
		l.Begin(0)
		return
	}
	if l.Begin(s.now()) {
		lane.Compare(s.lanes)
	}
}

// measure notes that a part was found delivered, and reports whether that changed the lane's speed.
func (s *Sender) measure(l *lane.Lane, size int) bool {
	if size < lane.Measurable { // too small to need the time
		return l.Measure(0, 0, size)
	}
	now, gap := s.lastPoll()
	return l.Measure(now, gap, size)
}

// remeasure changes the shares of every remeasureEvery-th message of size bytes so that each slow lane gets a
// part that is large enough to measure.
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

// oldestInFlight stores, for each lane by index, the number of the oldest message with a part in flight on
// it; 0 means none. It scans all requests, so that it should be called rarely.
func (s *Sender) oldestInFlight(first *[lane.MaxParts]uint64) {
	for i := range s.requests {
		req := &s.requests[i]
		if !req.active || req.done {
			continue
		}
		q := req.sent
		for k := range int(q.Last) + 1 {
			f := &first[q.Lanes[k]]
			if bit := uint32(1) << k; req.remaining&^q.Lost&bit != 0 && (*f == 0 || q.number < *f) {
				*f = q.number
			}
		}
	}
	if s.puts != nil {
		s.puts.oldestInFlight(first)
	}
}
