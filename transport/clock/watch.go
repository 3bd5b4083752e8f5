package clock

import (
	"cmp"
	"time"
)

// LookEvery is the longest pause between two looks at a [Watch], as a rule.
const LookEvery = 50 * time.Millisecond

// A Watch measures time in which this process ran, for a goroutine that looks at it often. What is more than Most between two
// looks does not count: then the process was stopped, or not scheduled.
type Watch struct {
	Most time.Duration // longest time between two looks that counts in full; 0: twice LookEvery

	last time.Time // look; zero: it stands
	ran  time.Duration
	lost time.Duration
}

// Start begins to measure, or goes on. The time since the last look does not count.
func (w *Watch) Start() { w.last = time.Now() }

// StartAt is Start with a last look in the past.
func (w *Watch) StartAt(look time.Time) { w.last = look }

// Reset forgets what was measured. A watch that runs goes on.
func (w *Watch) Reset() { w.ran, w.lost = 0, 0 }

// Stop stops the watch. The time since the last look does not count.
func (w *Watch) Stop() { w.last = time.Time{} }

// Look returns how long the process has run while the watch did. It starts one that stands.
func (w *Watch) Look() time.Duration {
	now, most := time.Now(), cmp.Or(w.Most, 2*LookEvery)
	if !w.last.IsZero() {
		gap := now.Sub(w.last)
		w.ran += min(gap, most)
		w.lost += max(gap-most, 0)
	}
	w.last = now
	return w.ran
}

// Ran is what the last Look returned.
func (w *Watch) Ran() time.Duration { return w.ran }

// Lost is how long the process did not run, up to the last look.
func (w *Watch) Lost() time.Duration { return w.lost }
