package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

const maxLogged = 256 // distinct refusals that are logged; further ones are only counted

// Stats are counters since the endpoint was opened, and the numbers of what is open now.
type Stats struct {
	Refused   map[string]uint64 // connections and requests refused, by reason
	Dialled   uint64            // sessions this side has dialled
	Accepted  uint64            // sessions the other side has dialled
	Cut       uint64            // links that broke
	Resumed   uint64            // links that continued a session
	Dead      uint64            // sessions that ended without a Bye
	Paced     uint64            // frames of neighbours that were delayed, because their cable was over its limit
	Sessions  int               // sessions now
	Listens   int               // listens that are not closed
	Strangers int               // connections not yet authenticated
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

type refusal struct {
	reason string
	source netip.Addr
}

// counters holds the statistics, and remembers which refusals have been logged.
type counters struct {
	mu     sync.Mutex // a leaf lock
	stats  Stats
	logged map[refusal]struct{}
}

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

func (c *counters) refuse(reason string) {
	c.add(func(s *Stats) {
		if s.Refused == nil {
			s.Refused = make(map[string]uint64)
		}
		s.Refused[reason]++
	})
}

// first reports whether a refusal is to be logged, and whether it is the last one that will be.
func (c *counters) first(r refusal) (first, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.logged[r]; ok || len(c.logged) >= maxLogged {
		return false, false
	}
	if c.logged == nil {
		c.logged = make(map[refusal]struct{})
	}
	c.logged[r] = struct{}{}
	return true, len(c.logged) == maxLogged
}

// refuse counts a refusal, and logs it once for its reason and address. The address is not known if the connection
// could not be accepted.
func (e *Endpoint) refuse(reason string, from netip.AddrPort, err error) {
	e.count.refuse(reason)
	first, last := e.count.first(refusal{reason, from.Addr()})
	if first {
		args := []any{"reason", reason}
		if from.IsValid() {
			args = append([]any{"from", from}, args...)
		}
		if err != nil {
			args = append(args, "error", err)
		}
		e.log.Warn("control: refused a connection; more of this kind from this address are only counted", args...)
	}
	if last {
		e.log.Warn("control: connections refused from now on are only counted")
	}
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	e.count.mu.Lock()
	s := e.count.stats
	s.Refused = maps.Clone(s.Refused)
	e.count.mu.Unlock()
	e.mu.Lock()
	s.Sessions, s.Listens = len(e.sessions), len(e.listens)
	e.mu.Unlock()
	s.Strangers = e.lobby.Len()
	return s
}
