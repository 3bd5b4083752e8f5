package internet

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"ncclmesh/tests/sim/bus"
)

// An Internet is all hosts and links of a simulation. Its methods, and those of what it consists of, may be called from
// any goroutine of the bus's bubble, also within an event.
type Internet struct {
	bus *bus.Bus

	mu     sync.Mutex // held for moments; taken before the bus's
	hosts  []*Host
	holes  map[[2]*Host]bool
	buffer int // of each stream; 0: of a size that is drawn, and what a stream takes is, too
	counts map[string]int
}

// New makes an empty internet.
func New(b *bus.Bus) *Internet {
	return &Internet{bus: b, holes: map[[2]*Host]bool{}, counts: map[string]int{}}
}

// after asks for an event that runs with n.mu locked.
func (n *Internet) after(s *bus.Source, d time.Duration, what string, do func()) *bus.Event {
	return s.After(d, what, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		do()
	})
}

// count counts something of interest. Preconditions: n.mu is locked.
func (n *Internet) count(what string) { n.counts[what]++ }

// Counts returns how often each thing of interest has happened: packets that were lost, repeats, resets, refusals. A
// simulation that wants to know whether it was nasty reads it.
func (n *Internet) Counts() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.counts)
}

// BlackHole makes all that one host sends to another vanish, over every link, while the links stay up; or ends that.
func (n *Internet) BlackHole(from, to *Host, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if on {
		n.holes[[2]*Host{from, to}] = true
	} else {
		delete(n.holes, [2]*Host{from, to})
	}
}

// Even gives streams that are made from now on buffers of a size, and has them take whatever they have room for.
func (n *Internet) Even(buffer int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.buffer = buffer
}

// Reset breaks the streams that match, at both ends, as a firewall on the way does. It returns how many there were.
func (n *Internet) Reset(matches func(dialler, listener netip.AddrPort) bool) (broken int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		for _, e := range h.streams() {
			if e.dialled && e.state == stateOpen && e.peer != nil && matches(e.local, e.remote) {
				broken++
				n.count("reset from outside")
				e.broken(resetErrno(e))
				if e.peer.state == stateOpen {
					e.peer.broken(resetErrno(e.peer))
				}
			}
		}
	}
	return broken
}
