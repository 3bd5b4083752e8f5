package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// Of a time in which the process did not run no more than Most counts.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2 * LookEvery
		var w Watch
		w.Start()
		for _, gap := range []time.Duration{time.Millisecond, most, 3 * time.Second} {
			time.Sleep(gap)
			w.Look()
		}
		if w.Ran() != 2*most+time.Millisecond || w.Lost() != 3*time.Second-most {
			t.Errorf("ran %v, lost %v", w.Ran(), w.Lost())
		}
		time.Sleep(time.Hour)
		w.Start()
		if w.Look(); w.Ran() != 2*most+time.Millisecond {
			t.Errorf("ran %v after a pause", w.Ran())
		}
	})
}
