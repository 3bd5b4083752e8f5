package lane

import "time"

const (
	// Measurable is the least size in bytes of a part that is used to measure a lane's speed.
	Measurable = 128 << 10

	minPace      = 1.0 / 16 // lower limit of a pace
	fullPace     = 0.8      // a pace from this value on counts as 1
	smoothing    = 8        // number of spans over which the rate is averaged
	minSpanRatio = 8        // a span must be this many times longer than the error of its end
	retryGain    = 1.25     // factor by which the rate of an unmeasured slow lane is raised
)

// speed is the measured speed of a lane while it had work. It decides the share of its weight that the lane
// gets. It is measured over spans: from the time at which a part is posted on an idle lane, or at which the
// last span ended, until parts are found delivered.
type speed struct {
	rate float64 // bytes per nanosecond, smoothed; 0 while unmeasured
	pace float64 // the rate per weight, as a fraction of the fastest lane's; 0 means 1

	began, ended time.Duration // of the span; began is 0 if there is none
	error        time.Duration // the span may have ended earlier by this much
	bytes        int64         // delivered in the span
	measured     bool          // a span was measured since the last call of Forget
}

// Rate returns the speed that the lane can carry beside the connection's other lanes: its weight, or less if it
// was measured to be slower than its weight promises.
func (l *Lane) Rate() float64 {
	if l.speed.pace == 0 {
		return l.Weight
	}
	return l.Weight * l.speed.pace
}

// Slow reports whether the rate is less than the lane's weight.
func (l *Lane) Slow() bool { return l.speed.pace != 0 }

// Begin starts a span when a part is posted on an idle lane. now is 0, which starts no span, if the part is
// smaller than Measurable. Begin reports whether the previous span gave a measurement.
func (l *Lane) Begin(now time.Duration) (measured bool) {
	measured = l.speed.finish()
	l.speed.began, l.speed.ended, l.speed.bytes = now, now, 0
	return measured
}

// Measure records that a part of size bytes was found delivered at now and was not yet delivered gap before. It
// reports whether the previous span gave a measurement.
func (l *Lane) Measure(now, gap time.Duration, size int) (measured bool) {
	s := &l.speed
	if size < Measurable {
		s.began = 0
		return false
	}
	if now != s.ended {
		measured = s.finish()
		s.ended, s.error = now, gap
	}
	s.bytes += int64(size)
	if s.began == 0 { // the start is unknown
		s.began, s.bytes = now, 0
	}
	return measured
}

// finish computes the rate of the span and starts the next one at its end. It returns false if the span gives
// no measurement.
func (s *speed) finish() bool {
	took := s.ended - s.began
	if s.began == 0 || s.bytes == 0 || took < minSpanRatio*s.error || took == 0 {
		return false
	}
	rate := float64(s.bytes) / float64(took)
	if s.rate > 0 {
		rate = s.rate + (rate-s.rate)/smoothing
	}
	s.rate, s.measured = rate, true
	s.began, s.bytes = s.ended, 0
	return true
}

// Forget raises the assumed speed of a slow lane that was not measured since the last call, because it may have
// become faster.
func (l *Lane) Forget() {
	if s := &l.speed; s.pace != 0 && !s.measured {
		s.rate *= retryGain
	}
	l.speed.measured = false
}

// Compare sets the pace of each of a connection's lanes, relative to the lane that is fastest for its weight.
// Only ratios are compared, because the highest possible speed of a link is unknown.
func Compare(lanes []*Lane) {
	best := 0.0
	for _, l := range lanes {
		if l.InService() {
			best = max(best, l.speed.rate/l.Weight)
		}
	}
	for _, l := range lanes {
		pace := max(l.speed.rate/l.Weight/best, minPace)
		if l.speed.rate == 0 || pace >= fullPace {
			pace = 0
		}
		l.setPace(pace)
	}
}

// setPace sets the pace and adjusts Carried, so that the lane's turn does not change.
func (l *Lane) setPace(pace float64) {
	if pace == l.speed.pace {
		return
	}
	sent := float64(l.Bytes.Value())
	l.Carried += sent / l.Rate()
	l.speed.pace = pace
	l.Carried -= sent / l.Rate()
}
