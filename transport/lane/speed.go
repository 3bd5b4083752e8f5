package lane

import "time"

const (
	// Measurable is the size of the least part that says something of a lane's speed.
	Measurable = 128 << 10

	minPace      = 1.0 / 16 // pace
	fullPace     = 0.8      // pace from which on a lane is as fast as the others
	smoothing    = 8        // spans that a rate is smoothed over
	minSpanRatio = 8        // times that a span is longer than what is not known of it
	retryGain    = 1.25     // by how much a lane may be faster that was not measured for long
)

// speed is how fast a lane has been of late while it had work, and so how much of its
// weight it is to have. It is measured over spans: from when a part is posted on an idle
// lane, or the last span ended, until parts are found delivered.
type speed struct {
	rate float64 // bytes in a nanosecond, smoothed; 0 while it was not measured
	pace float64 // what part of its weight that is beside its siblings; 0 is all of it

	began, ended time.Duration // of the span; began is 0 while there is none
	error        time.Duration // by how much it may have ended before
	bytes        int64         // delivered in it
	measured     bool          // since the last call of Forget
}

// Rate is what the lane can carry beside its siblings: its weight, or less while it is
// slower than that promises.
func (l *Lane) Rate() float64 {
	if l.speed.pace == 0 {
		return l.Weight
	}
	return l.Weight * l.speed.pace
}

// Slow reports whether that is less than its weight.
func (l *Lane) Slow() bool { return l.speed.pace != 0 }

// Begin begins a span, as a part is posted on an idle lane: at now, or at 0, which is
// none, when it is less than Measurable. It reports whether the last one said something.
func (l *Lane) Begin(now time.Duration) (said bool) {
	said = l.speed.finish()
	l.speed.began, l.speed.ended, l.speed.bytes = now, now, 0
	return said
}

// Measure notes that a part was found delivered now, and was not a gap before. It reports
// whether what was found before said something.
func (l *Lane) Measure(now, gap time.Duration, size int) (said bool) {
	s := &l.speed
	if size < Measurable {
		s.began = 0
		return false
	}
	if now != s.ended {
		said = s.finish()
		s.ended, s.error = now, gap
	}
	s.bytes += int64(size)
	if s.began == 0 { // since when is not known
		s.began, s.bytes = now, 0
	}
	return said
}

// finish reports whether a span says something, and begins the next one where it ended.
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

// Forget takes a slow lane to be faster that was not measured since the last call: it may
// have become so.
func (l *Lane) Forget() {
	if s := &l.speed; s.pace != 0 && !s.measured {
		s.rate *= retryGain
	}
	l.speed.measured = false
}

// Compare gives each of a connection's lanes its pace, by the fastest for its weight: what
// links could do at best nobody knows, and only the ratios count.
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

// setPace has the lane keep the turns that it has had.
func (l *Lane) setPace(pace float64) {
	if pace == l.speed.pace {
		return
	}
	sent := float64(l.Bytes.Value())
	l.Carried += sent / l.Rate()
	l.speed.pace = pace
	l.Carried -= sent / l.Rate()
}
