package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Stats are counters since the endpoint was opened, and the numbers of what is open now.
type Stats struct {
	Refused  map[string]uint64 // connections and requests refused, by reason
	Dialled  uint64            // sessions this side has dialled
	Accepted uint64            // sessions the other side has dialled
	Cut      uint64            // links that broke
	Resumed  uint64            // links that continued a session
	Dead     uint64            // sessions that ended without a Bye
	Paced    uint64            // frames of neighbours that were delayed, because their cable was over its limit
	Sessions int               // sessions now
	Listens  int               // listens that are not closed
	Pending  int               // connections not yet authenticated
}

// String returns the statistics as one line of text.
func (s Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d sessions dialled, %d accepted, %d links cut, %d resumed, %d peers died", s.Dialled, s.Accepted, s.Cut, s.Resumed, s.Dead)
	refused := uint64(0)
	for _, n := range s.Refused {
		refused += n
	}
	fmt.Fprintf(&b, ", %d handshakes refused", refused)
	for i, reason := range slices.Sorted(maps.Keys(s.Refused)) {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%d %s", sep, s.Refused[reason], reason)
	}
	return b.String()
}

// counters holds the statistics but for the refusals, which the acceptor counts.
type counters struct {
	mu    sync.Mutex // a leaf lock
	stats Stats
}

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	e.count.mu.Lock()
	s := e.count.stats
	e.count.mu.Unlock()
	s.Refused = e.acceptor.Counts()
	e.mu.Lock()
	s.Sessions, s.Listens = len(e.sessions), len(e.listens)
	e.mu.Unlock()
	s.Pending = e.acceptor.Pending()
	return s
}
