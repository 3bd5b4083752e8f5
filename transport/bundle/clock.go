package bundle

import "time"

// glance is the most that counts of the time between two looks at a clock: who
// waits looks every LookEvery at least, so that a longer gap is time in which the
// process was stopped, or not scheduled.
const (
	glance    = 100 * time.Millisecond
	LookEvery = 50 * time.Millisecond
)

// Outage is how long there has been no way to a peer while this process ran: for a connection
// that has lost its lanes, and for one that is being set up. Whoever waits looks at it every
// LookEvery at least.
type Outage struct {
	since time.Time // the last look; zero while there is a way
	spent time.Duration
}

// Look begins to count, or counts on, and returns how long it has been in all.
func (o *Outage) Look() time.Duration {
	now := time.Now()
	if !o.since.IsZero() {
		o.spent += min(now.Sub(o.since), glance)
	}
	o.since = now
	return o.spent
}

// Over says that there is a way.
func (o *Outage) Over() { o.since = time.Time{} }

// clock measures a set-up by the time in which this process ran.
type clock struct {
	glance time.Duration // scaled
	last   time.Time
	ran    time.Duration
	lost   time.Duration // in which it did not
}

// start lets the time since the last look pass uncounted.
func (k *clock) start() { k.last = time.Now() }

// look returns how long the process has run while the clock did.
func (k *clock) look() time.Duration {
	now := time.Now()
	gap := now.Sub(k.last)
	k.last = now
	k.ran += min(gap, k.glance)
	k.lost += max(gap-k.glance, 0)
	return k.ran
}

// Ran is how long this process has run while the bundle was set up.
func (b *Bundle) Ran() time.Duration { return b.first.clock.ran }
