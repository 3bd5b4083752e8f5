package lane

import (
	"math"
	"testing"
	"time"

	"ncclmesh/transport/stats"
)

// work makes a lane deliver parts one after another; each is found by a poll that comes gap after the last, and
// is passed to Measure.
func work(l *Lane, now *time.Duration, parts, size int, each, gap time.Duration) (measured bool) {
	for range parts {
		*now += each
		measured = l.Measure(*now, gap, size) || measured
	}
	return measured
}

// fresh creates lanes in service with the given weights, each of which has started a span.
func fresh(weights ...float64) (lanes []*Lane, now time.Duration) {
	now = time.Second
	for _, w := range weights {
		l := &Lane{Lane: new(stats.Lane), Weight: w}
		l.Enter(Connected)
		l.Enter(Up)
		l.Begin(now)
		lanes = append(lanes, l)
	}
	return lanes, now
}

// The rate of a lane is its speed relative to the other lanes by their weights, between a sixteenth and
// the whole of its weight.
func TestSpeed(t *testing.T) {
	const part = 1 << 20
	const us = time.Microsecond
	tests := []struct {
		name    string
		weights []float64
		each    []time.Duration // that a part takes on each lane
		want    []float64       // rates
	}{
		{"equal", []float64{100, 100}, []time.Duration{100 * us, 100 * us}, []float64{100, 100}},
		{"nearly equal", []float64{100, 100}, []time.Duration{100 * us, 120 * us}, []float64{100, 100}},
		{"one at a quarter", []float64{100, 100}, []time.Duration{400 * us, 100 * us}, []float64{25, 100}},
		{"both slower than their links", []float64{100, 50}, []time.Duration{1000 * us, 2000 * us}, []float64{100, 50}},
		{"as fast as one of more weight", []float64{100, 50}, []time.Duration{100 * us, 100 * us}, []float64{50, 50}},
		{"hardly moving", []float64{100, 100}, []time.Duration{100 * us, 10000 * us}, []float64{100, 6.25}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lanes, begun := fresh(tt.weights...)
			for i, l := range lanes {
				now := begun
				work(l, &now, 100, part, tt.each[i], us)
			}
			Compare(lanes)
			for i, l := range lanes {
				if math.Abs(l.Rate()-tt.want[i]) > tt.want[i]/50 || l.Slow() != (tt.want[i] < tt.weights[i]) {
					t.Errorf("lane %d has %g, slow %v; want %g", i, l.Rate(), l.Slow(), tt.want[i])
				}
			}
		})
	}
}

// Only spans that can be timed exactly enough give a measurement.
func TestSpeedUnknown(t *testing.T) {
	const part, gap = 1 << 20, time.Microsecond
	tests := []struct {
		name string
		do   func(l *Lane, now *time.Duration) bool
		want bool
	}{
		{"under load", func(l *Lane, now *time.Duration) bool { return work(l, now, 3, part, 20*gap, gap) }, true},
		{"small parts", func(l *Lane, now *time.Duration) bool { return work(l, now, 9, Measurable-1, 20*gap, gap) }, false},
		{"seen late", func(l *Lane, now *time.Duration) bool { return work(l, now, 5, part, 20*gap, 19*gap) }, false},
		{"all in one poll", func(l *Lane, now *time.Duration) bool { return work(l, now, 9, part, 0, gap) }, false},
		{"behind a small part on an idle lane", func(l *Lane, now *time.Duration) bool {
			l.Begin(0)
			return work(l, now, 2, part, 20*gap, gap)
		}, false},
		{"of what was found last, when the lane has work again", func(l *Lane, now *time.Duration) bool {
			work(l, now, 1, part, 20*gap, gap)
			*now += time.Hour // idle
			return l.Begin(*now)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lanes, now := fresh(100)
			if got := tt.do(lanes[0], &now); got != tt.want {
				t.Errorf("measured: %v, want %v", got, tt.want)
			}
		})
	}
}

// A slow lane gets its share back when it is measured to be faster, and when it was not measured for long; its
// turns continue from where they were.
func TestSpeedRecovers(t *testing.T) {
	const part = 1 << 20
	slow := func() []*Lane {
		lanes, now := fresh(100, 100)
		then := now
		lanes[0].Bytes.Add(1 << 30)
		work(lanes[0], &now, 100, part, 800*time.Microsecond, time.Microsecond)
		work(lanes[1], &then, 100, part, 100*time.Microsecond, time.Microsecond)
		Compare(lanes)
		if !lanes[0].Slow() || lanes[1].Slow() {
			t.Fatalf("the lanes have %g and %g", lanes[0].Rate(), lanes[1].Rate())
		}
		if used := lanes[0].Carried + float64(lanes[0].Bytes.Value())/lanes[0].Rate(); math.Abs(used/(1<<30/100.0)-1) > 1e-6 {
			t.Fatalf("its turns were %g and are %g", 1<<30/100.0, used)
		}
		return lanes
	}
	lanes := slow()
	now := time.Hour
	lanes[0].Begin(now)
	work(lanes[0], &now, 30, part, 100*time.Microsecond, time.Microsecond)
	if Compare(lanes); lanes[0].Slow() {
		t.Errorf("a lane that is as fast as the other has %g of 100", lanes[0].Rate())
	}
	lanes = slow()
	lanes[0].Forget() // it was measured
	before := lanes[0].Rate()
	if Compare(lanes); lanes[0].Rate() != before {
		t.Errorf("a lane that was measured has %g, and %g before", lanes[0].Rate(), before)
	}
	for range 12 {
		lanes[0].Forget()
		lanes[1].Forget()
	}
	if Compare(lanes); lanes[0].Slow() {
		t.Errorf("a lane that was not measured for long has %g of 100", lanes[0].Rate())
	}
}
