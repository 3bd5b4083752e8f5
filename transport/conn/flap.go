package conn

import (
	"fmt"
	"time"
)

// A lane that fails within steady of its return has flapped, as over a cable that is loose.
// The first return of a lane is at once. After the n-th flap in a row its path is left alone
// for shortestHold times two to the power of n-1, longestHold at most; a lane that has been
// in service for longer than steady when it fails starts the count anew. A connection that
// has no lane in service takes the path back at once all the same.
const (
	stableTime  = 10 * time.Second
	minHoldDown = 100 * time.Millisecond
	maxHoldDown = 10 * time.Second

	doublings = 7 // shortestHold to longestHold
)

// flapping is how many flaps in a row make the log call a path flapping.
const flapsToReport = 2

// flaps counts how often in a row the lanes of one path have failed soon after they came
// back. The zero value is that of a path whose lanes have not.
type flapRecord struct {
	returned  time.Time // when a lane came back last; zero once one has failed since
	count     int       // flaps in a row
	holdUntil time.Time // when the path may have a lane again
}

// joined notes that a lane of the path has come back.
func (r *flapRecord) joined(now time.Time) { r.returned = now }

// failed notes that a lane of the path has failed: of several that came back together the
// first counts. scale multiplies the durations of the schedule. It reports whether the
// user is to be told of the flaps: when they become flapping, and when they are twice as
// many as when that was told before.
func (r *flapRecord) failed(now time.Time, scale float64) (tell bool) {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * scale) }
	switch back := r.returned; {
	case back.IsZero():
		return false
	case now.Sub(back) > scaled(stableTime):
		*r = flapRecord{}
		return false
	}
	r.returned = time.Time{}
	r.count++
	r.holdUntil = now.Add(scaled(min(minHoldDown<<min(r.count-1, doublings), maxHoldDown)))
	return r.count >= flapsToReport && r.count&(r.count-1) == 0
}

// held reports whether the path is to be left alone.
func (r *flapRecord) held(now time.Time) bool { return now.Before(r.holdUntil) }

// quiet reports whether the user has been told that the path flaps: what happens to each
// lane of it is no news.
func (r *flapRecord) quiet() bool { return r.count >= flapsToReport }

// text says for people that the path flaps, at the time of a failure.
func (r *flapRecord) text(now time.Time, scale float64) string {
	return fmt.Sprintf("it flaps: it has failed %d times, each within %v of its return, and now stays out for %v, after each further failure for longer, up to %v; check the cable and its plugs",
		r.count, time.Duration(float64(stableTime)*scale), r.holdUntil.Sub(now), time.Duration(float64(maxHoldDown)*scale))
}

// flapsOf are those of a path.
//
// Preconditions: c is locked.
func (c *Conn) flapRecordOf(w pathKey) *flapRecord {
	f := c.flapRecords[w]
	if f == nil {
		f = &flapRecord{}
		c.flapRecords[w] = f
	}
	return f
}

// avoids reports whether lanes of a path would not stay in service, or not for long, while
// others carry the connection's messages: it flaps, or its port has no carrier. Without
// another lane it is as good as any: a carrier that is gone for a moment, and a cable that
// is loose, are better than nothing.
//
// Preconditions: c is locked.
func (c *Conn) avoids(w pathKey) bool {
	return w.port.NoCarrier() && c.otherPortInService(w.port) || c.flapRecordOf(w).held(time.Now()) && c.inService() > 0
}
