package conn

import (
	"fmt"
	"math/bits"
	"time"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// The limits of stall detection. Durations are multiplied by the time scale.
const (
	stallTime       = 500 * time.Millisecond // how long a lane may deliver nothing while others do
	stallCheckEvery = 50 * time.Millisecond  // between two checks
	pollGapLimit    = 10 * time.Millisecond  // the most that counts of the time between two polls
	pollsPerClock   = 8                      // the clock is read at least once in so many polls
)

// stalls finds lanes of a sender on which nothing moves. A lane stalls if a part waits on it while another
// lane has delivered parts that were posted at the same time or later; or if a grant has not arrived over it
// while later grants have, and the peer's process answers on the session. Time counts only while the
// connection is polled, because a process that is stopped, starved or busy elsewhere does not see what its
// lanes have delivered.
type stalls struct {
	start     time.Time     // of the connection
	now       time.Duration // time of the last poll that read the clock, since start
	gap       time.Duration // time between the last two polls that read the clock
	polled    time.Duration // sum of all gaps, of which each counts pollGapLimit at most; the clock of the fields below
	checked   time.Duration // value of polled at the last check
	skipped   int           // polls since the clock was read
	delivered bool          // a part was delivered since the last poll began
	lanes     [lane.MaxParts]laneProgress

	missing      uint64        // sequence of a grant that has not arrived though a later one has; 0: none
	missingLane  *lane.Lane    // lane over which that grant was sent, at the last check
	missingSince time.Duration // value of polled from which the wait for that grant over that lane counts
}

// laneProgress is what the last check saw of the lane with some index.
type laneProgress struct {
	lane      *lane.Lane
	delivered uint64        // number of parts
	overtaken bool          // another lane has delivered what was posted later
	since     time.Duration // value of stalls.polled when the other fields last changed
}

// now returns the time since the connection was made. It is never 0. It is meant for intervals on one
// connection.
func (c *Conn) now() time.Duration { return c.stalls.elapsed() }

// elapsed returns the time since start. It is never 0.
func (s *stalls) elapsed() time.Duration { return time.Since(s.start) + 1 }

// lastPoll returns the time of the poll that is running, and how long after the previous one it began. It is
// called while lanes are polled, by a sender with several lanes.
//
// Preconditions: c is locked.
func (c *Conn) lastPoll() (now, gap time.Duration) {
	if c.stalls.skipped > 0 {
		c.stalls.tick(c.maxPollGap)
	}
	return c.stalls.now, c.stalls.gap
}

// noteDelivered notes that a part was delivered.
//
// Preconditions: c is locked.
func (c *Conn) noteDelivered() { c.stalls.delivered = true }

// beforePoll must be called before lanes are polled. While each poll finds delivered parts it does not read
// the clock in all of them, because reading it costs as much as the poll. gap is the most that counts of the
// time between two polls.
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

// checkStalls reports lanes that have stalled as failed. It must be called right after the lanes were polled,
// because it relies on what they have delivered.
//
// Preconditions: c is locked.
func (c *Conn) checkStalls() {
	s := &c.stalls
	if s.polled-s.checked < c.env.Clock.Scaled(stallCheckEvery) {
		return
	}
	var first [lane.MaxParts]uint64
	c.sender.oldestInFlight(&first)
	i := s.noteMissing(c.sender.missingGrant())
	switch {
	case i < 0 || i >= len(c.lanes):
	case c.Session.Silence() > c.env.Clock.Scaled(stallCheckEvery): // the grant may be late because the peer's process is stopped
		s.missingSince = s.polled
	case s.overdue(c.lanes[i]) >= c.env.Clock.Scaled(stallTime) && c.inService() > 1:
		l := c.lanes[i]
		c.ReportFailure(l, fmt.Errorf("%w: %v: %s: no grant arrived over it for %v, while later ones arrived over other lanes; check the cable and both ports",
			fault.ErrLane, c, l.Path(), (s.polled-s.missingSince).Round(10*time.Millisecond)))
	}
	for stalled := s.find(c.lanes, &first, c.env.Clock.Scaled(stallTime)); stalled != 0; stalled &= stalled - 1 {
		i := bits.TrailingZeros32(stalled)
		l, quiet := c.lanes[i], s.polled-s.lanes[i].since
		c.ReportFailure(l, fmt.Errorf("%w: %v: %s: nothing was delivered for %v, while later messages were delivered over other lanes; check the cable and both ports",
			fault.ErrLane, c, l.Path(), quiet.Round(10*time.Millisecond)))
	}
}

// noteMissing notes the sequence of the missing grant, 0 for none. index is the index of the lane over which
// it was sent. noteMissing returns index if the same grant was missing before, else -1.
func (s *stalls) noteMissing(seq uint64, index int) int {
	if seq == 0 || seq != s.missing {
		s.missing, s.missingSince = seq, s.polled
		return -1
	}
	return index
}

// overdue returns for how long the missing grant has not arrived over lane l, and l has been healthy. A grant
// that was sent over a lane that has failed since, or has been replaced by l, is sent again, so that its time
// starts anew.
func (s *stalls) overdue(l *lane.Lane) time.Duration {
	if l != s.missingLane || !isHealthy(l) {
		s.missingLane, s.missingSince = l, s.polled
	}
	return s.polled - s.missingSince
}

// find returns a mask of the lanes that have stalled for limit. first has, for each lane, the number of the
// oldest message that waits on it.
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

// overtaken reports whether another lane in service has delivered message number first, or a later one. first
// is the oldest message that waits on l; 0 means none.
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

// isHealthy reports whether a lane is in service and no failure of it is known.
func isHealthy(l *lane.Lane) bool { return l.InService() && l.Failure() == nil }

// slowTransferTime returns how long the backlog of a lane takes at a sixteenth of the lane's speed. A lane
// gets that time in addition, because a slow lane has not stalled.
func slowTransferTime(l *lane.Lane) time.Duration {
	const bitsOfByte, mega, slow = 8, 1e6, 16
	return time.Duration(float64(l.Backlog) * bitsOfByte * slow / (l.Weight * mega) * float64(time.Second))
}
