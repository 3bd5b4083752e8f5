package hail

import (
	"net/netip"
	"sync"
	"time"
)

// Limits of the answers that an interface gives in a second. A socket or a node that asks more often uses up a limit of
// its own, so that others are still answered: a socket gets as many answers as an asking has questions, and an address as
// many as the askings of 25 processes have.
const (
	maxOfSocket  = questions
	maxOfAddress = 25 * questions
	maxAnswers   = 2 * maxOfAddress
)

// fair divides the answers of an interface among those that ask there.
type fair struct {
	mu    sync.Mutex // a leaf
	start time.Time  // of this second
	all   int        // answers in it
	to    map[netip.AddrPort]int
}

// allow reports whether a question that came from an address at a time is answered, and counts the answer.
func (f *fair) allow(now time.Time, from netip.AddrPort) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to == nil || now.Sub(f.start) >= time.Second {
		f.start, f.all, f.to = now, 0, make(map[netip.AddrPort]int)
	}
	node := netip.AddrPortFrom(from.Addr(), 0)
	if f.all >= maxAnswers || f.to[node] >= maxOfAddress || f.to[from] >= maxOfSocket {
		return false
	}
	f.all++
	f.to[node]++
	f.to[from]++
	return true
}
