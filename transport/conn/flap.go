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
	steady       = 10 * time.Second
	shortestHold = 100 * time.Millisecond
	longestHold  = 10 * time.Second

	doublings = 7 // shortestHold to longestHold
)

// flapping is how many flaps in a row make the log call a path flapping.
const flapping = 2

// flaps counts how often in a row the lanes of one path have failed soon after they came
// back. The zero value is that of a path whose lanes have not.
type flaps struct {
	back  time.Time // when a lane came back last; zero once one has failed since
	n     int       // flaps in a row
	until time.Time // when the path may have a lane again
}

// joined notes that a lane of the path has come back.
func (f *flaps) joined(now time.Time) { f.back = now }

// failed notes that a lane of the path has failed: of several that came back together the
// first counts. scale multiplies the durations of the schedule. It reports whether the
// user is to be told of the flaps: when they become flapping, and when they are twice as
// many as when that was told before.
func (f *flaps) failed(now time.Time, scale float64) (tell bool) {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) * scale) }
	switch back := f.back; {
	case back.IsZero():
		return false
	case now.Sub(back) > scaled(steady):
		*f = flaps{}
		return false
	}
	f.back = time.Time{}
	f.n++
	f.until = now.Add(scaled(min(shortestHold<<min(f.n-1, doublings), longestHold)))
	return f.n >= flapping && f.n&(f.n-1) == 0
}

// held reports whether the path is to be left alone.
func (f *flaps) held(now time.Time) bool { return now.Before(f.until) }

// quiet reports whether the user has been told that the path flaps: what happens to each
// lane of it is no news.
func (f *flaps) quiet() bool { return f.n >= flapping }

// text says for people that the path flaps, at the time of a failure.
func (f *flaps) text(now time.Time, scale float64) string {
	return fmt.Sprintf("it flaps: it has failed %d times, each within %v of its return, and now stays out for %v, after each further failure for longer, up to %v; check the cable and its plugs",
		f.n, time.Duration(float64(steady)*scale), f.until.Sub(now), time.Duration(float64(longestHold)*scale))
}

// flapsOf are those of a path.
//
// Preconditions: c is locked.
func (c *Conn) flapsOf(w pathKey) *flaps {
	f := c.flaps[w]
	if f == nil {
		f = &flaps{}
		c.flaps[w] = f
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
	return w.port.NoCarrier() && c.spared(w.port) || c.flapsOf(w).held(time.Now()) && c.inService() > 0
}
