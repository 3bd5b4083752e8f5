package conn

import (
	"fmt"
	"math/bits"
	"time"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

const (
	stallTime       = 500 * time.Millisecond // that a lane may deliver nothing while others do; scaled, as what follows
	stallCheckEvery = 50 * time.Millisecond  // between two judgements
	pollGapLimit    = 10 * time.Millisecond  // the most that counts of the time between two polls
	pollsPerClock   = 8                      // polls, at one of which at least the clock is read
)

// stalls finds lanes on which nothing moves, at the sender: one on which a part waits
// while another lane has delivered what was posted with it or later, or over which a grant
// does not come that later ones have overtaken, of a process that answers on the session. It
// goes by the time in which the connection was polled: a process that is stopped, starved or
// busy with something else has not seen what its lanes delivered.
type stalls struct {
	start     time.Time     // of the connection
	now       time.Duration // of the last poll at which the clock was read
	gap       time.Duration // between the last two of those
	polled    time.Duration // so far: no more than pollGapLimit of each gap
	checked   time.Duration // when polled was that
	skipped   int           // polls since the last at which the clock was read
	delivered bool          // parts were delivered since the last poll began
	lanes     [lane.MaxParts]laneProgress

	missing      uint64        // grant that has not come
	missingLane  *lane.Lane    // over which it was to come
	missingSince time.Duration // when that was first seen of the two, and polled was that
}

// laneProgress is what is known of a lane in some place.
type laneProgress struct {
	lane      *lane.Lane
	delivered uint64        // parts
	overtaken bool          // when it was last checked
	since     time.Duration // when that was first seen, and that it had delivered those; polled was that
}

// now is the time for intervals of one connection; it is never 0.
func (c *Conn) now() time.Duration { return c.stalls.elapsed() }

func (s *stalls) elapsed() time.Duration { return time.Since(s.start) + 1 }

// polled is when the connection was polled last, and how long after the time before, while
// it sends over several lanes. It is called as lanes are polled.
//
// Preconditions: c is locked.
func (c *Conn) lastPoll() (now, gap time.Duration) {
	if c.stalls.skipped > 0 {
		c.stalls.tick(c.maxPollGap)
	}
	return c.stalls.now, c.stalls.gap
}

// delivers notes that a part was delivered.
//
// Preconditions: c is locked.
func (c *Conn) noteDelivered() { c.stalls.delivered = true }

// look notes that lanes are about to be polled. While each poll brings something the clock,
// which costs as much, is not read at all of them.
func (s *stalls) beforePoll(gap time.Duration) {
	if s.delivered && s.skipped+1 < pollsPerClock {
		s.skipped++
		s.delivered = false
		return
	}
	s.tick(gap)
}

// tick reads the clock.
func (s *stalls) tick(gap time.Duration) {
	now := s.elapsed()
	s.gap, s.now = now-s.now, now
	s.polled += min(s.gap, gap)
	s.skipped, s.delivered = 0, false
}

// checkStalls accuses lanes that have stalled, right after they were polled: what they had
// delivered is known.
//
// Preconditions: c is locked.
func (c *Conn) checkStalls() {
	s := &c.stalls
	if s.polled-s.checked < c.env.Scaled(stallCheckEvery) {
		return
	}
	var first [lane.MaxParts]uint64
	c.sender.oldestInFlight(&first)
	i := s.noteMissing(c.sender.missingGrant())
	switch {
	case i < 0 || i >= len(c.lanes):
	case c.Session.Silence() > c.env.Scaled(stallCheckEvery): // a process that is stopped may owe it
		s.missingSince = s.polled
	case s.overdue(c.lanes[i]) >= c.env.Scaled(stallTime) && c.inService() > 1:
		l := c.lanes[i]
		c.ReportFailure(l, fmt.Errorf("%w: %v: %s: no grant arrived over it for %v, while later ones arrived over other lanes; check the cable and both ports",
			fault.ErrLane, c, l.Path(), (s.polled-s.missingSince).Round(10*time.Millisecond)))
	}
	for stalled := s.find(c.lanes, &first, c.env.Scaled(stallTime)); stalled != 0; stalled &= stalled - 1 {
		i := bits.TrailingZeros32(stalled)
		l, quiet := c.lanes[i], s.polled-s.lanes[i].since
		c.ReportFailure(l, fmt.Errorf("%w: %v: %s: nothing was delivered for %v, while later messages were delivered over other lanes; check the cable and both ports",
			fault.ErrLane, c, l.Path(), quiet.Round(10*time.Millisecond)))
	}
}

// awaited notes which grant is missing, and returns over which lane it was to come; -1
// when none is that was before.
func (s *stalls) noteMissing(seq uint64, index int) int {
	if seq == 0 || seq != s.missing {
		s.missing, s.missingSince = seq, s.polled
		return -1
	}
	return index
}

// overdue is how long the missing grant has been awaited over a lane that stands. Over one that does not, or that has taken the
// place of such a one, it does not come: it goes again.
func (s *stalls) overdue(l *lane.Lane) time.Duration {
	if l != s.missingLane || !isHealthy(l) {
		s.missingLane, s.missingSince = l, s.polled
	}
	return s.polled - s.missingSince
}

// find returns the lanes, a bit for each, that have stalled for limit. first is the number
// of the message that was posted first of those that wait on each lane.
func (s *stalls) find(lanes []*lane.Lane, first *[lane.MaxParts]uint64, limit time.Duration) (stalled uint32) {
	s.checked = s.polled
	for i, l := range lanes {
		was := &s.lanes[i]
		now := overtaken(l, first[i], lanes)
		if was.lane != l || was.delivered != l.Delivered || !now || !was.overtaken {
			*was = laneProgress{l, l.Delivered, now, s.polled}
			continue
		}
		if s.polled-was.since >= limit+slowTransferTime(l) && l.Carrier.Stalled() {
			stalled |= 1 << i
		}
	}
	return stalled
}

// overtaken reports whether another lane in service has delivered message first, which is
// the first that waits on l, or a later one; 0 is none.
func overtaken(l *lane.Lane, first uint64, lanes []*lane.Lane) bool {
	if first == 0 || !isHealthy(l) {
		return false
	}
	for _, other := range lanes {
		if other != l && isHealthy(other) && other.Latest >= first {
			return true
		}
	}
	return false
}

// isHealthy reports whether a lane is in service, and nothing is said against it.
func isHealthy(l *lane.Lane) bool { return l.InService() && l.Failure() == nil }

// patience is how long what is under way on a lane takes at a sixteenth of its speed: one
// that is slow has not stalled.
func slowTransferTime(l *lane.Lane) time.Duration {
	const bitsOfByte, mega, slow = 8, 1e6, 16
	return time.Duration(float64(l.Backlog) * bitsOfByte * slow / (l.Weight * mega) * float64(time.Second))
}
