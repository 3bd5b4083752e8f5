package bundle

import (
	"testing"
	"testing/synctest"
	"time"
)

// Of a time in which the process did not run no more than a glance counts.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := clock{glance: glance}
		k.start()
		for _, gap := range []time.Duration{time.Millisecond, glance, 3 * time.Second} {
			time.Sleep(gap)
			k.look()
		}
		if k.ran != 2*glance+time.Millisecond || k.lost != 3*time.Second-glance {
			t.Errorf("ran %v, lost %v", k.ran, k.lost)
		}
		time.Sleep(time.Hour)
		k.start()
		if k.look(); k.ran != 2*glance+time.Millisecond {
			t.Errorf("ran %v after a pause", k.ran)
		}
	})
}
