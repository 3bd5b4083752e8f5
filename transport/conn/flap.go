package conn

import (
	"fmt"
	"time"
)

// A lane that fails within stableTime of its return has flapped, for example because a cable is
// loose. After its first failure a path is used again at once. After the n-th flap in a row it is
// held down for minHoldDown times two to the power of n-1, at most maxHoldDown. A lane that fails
// later than stableTime after its return resets the count. A connection without a lane in service
// ignores the hold-down.
const (
	stableTime  = 10 * time.Second
	minHoldDown = 100 * time.Millisecond
	maxHoldDown = 10 * time.Second

	doublings = 7 // from minHoldDown to maxHoldDown
)

// flapsToReport is the number of flaps in a row from which the log says that a path flaps.
const flapsToReport = 2

// flapRecord counts how often in a row the lanes of one path have failed soon after they came back. The zero
// value belongs to a path that has not flapped.
type flapRecord struct {
	returned  time.Time // when a lane last came back; zero once a lane has failed since
	count     int       // flaps in a row
	holdUntil time.Time // end of the hold-down
}

// joined notes that a lane of the path has come back.
func (r *flapRecord) joined(now time.Time) { r.returned = now }

// failed notes that a lane of the path has failed. If several lanes came back together, only the first
// failure counts. scale multiplies the durations. failed reports whether to tell the user that the path
// flaps: when the count reaches flapsToReport, and whenever it has doubled since the last report.
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

// held reports whether the path is held down.
func (r *flapRecord) held(now time.Time) bool { return now.Before(r.holdUntil) }

// quiet reports whether the user knows already that the path flaps, so that failures of its lanes need no
// warning.
func (r *flapRecord) quiet() bool { return r.count >= flapsToReport }

// text returns the log text which says that the path flaps. now is the time of the failure.
func (r *flapRecord) text(now time.Time, scale float64) string {
	return fmt.Sprintf("it flaps: it has failed %d times, each within %v of its return, and now stays out for %v, after each further failure for longer, up to %v; check the cable and its plugs",
		r.count, time.Duration(float64(stableTime)*scale), r.holdUntil.Sub(now), time.Duration(float64(maxHoldDown)*scale))
}

// flapRecordOf returns the flap record of a path, and makes one if there is none.
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

// avoids reports whether a lane over a path would soon go out of service again while other lanes carry the
// messages: the path is held down, or its port has no carrier. If no other lane is in service no path is
// avoided, because an unstable path is better than none.
//
// Preconditions: c is locked.
func (c *Conn) avoids(w pathKey) bool {
	return w.port.NoCarrier() && c.otherPortInService(w.port) || c.flapRecordOf(w).held(time.Now()) && c.inService() > 0
}
