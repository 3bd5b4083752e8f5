package discovery

import (
	"net/netip"
	"sync"
	"time"
)

// Limits of the replies that one interface sends in a second. Each socket and each address has a limit of its own, so
// that a flood from one does not use up the replies of the others: a socket gets as many replies as a round has
// queries, and an address gets enough for the rounds of 25 processes.
const (
	maxToSocket  = maxQueries
	maxToAddress = 25 * maxQueries
	maxReplies   = 2 * maxToAddress
)

// rateLimit limits the replies of one interface in each second.
type rateLimit struct {
	mu    sync.Mutex // a leaf lock
	start time.Time  // of the current second
	all   int        // replies in the current second
	to    map[netip.AddrPort]int
}

// allow reports whether a query that arrived from an address at a time may be answered, and counts the reply.
func (f *rateLimit) allow(now time.Time, from netip.AddrPort) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to == nil || now.Sub(f.start) >= time.Second {
		f.start, f.all, f.to = now, 0, make(map[netip.AddrPort]int)
	}
	node := netip.AddrPortFrom(from.Addr(), 0)
	if f.all >= maxReplies || f.to[node] >= maxToAddress || f.to[from] >= maxToSocket {
		return false
	}
	f.all++
	f.to[node]++
	f.to[from]++
	return true
}
