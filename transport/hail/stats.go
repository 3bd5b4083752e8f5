package hail

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"ncclmesh/handshake"
)

// Reasons of refusals, as counted and logged.
const (
	reasonMalformed = "malformed datagram"
	reasonVersion   = "wrong version"
	reasonMAC       = "wrong MAC"
	reasonGroup     = "not sent to the multicast group"
	reasonPort      = "arrived on another interface"
	reasonHops      = "came through a router"
	reasonNonce     = "answers no query"
	reasonFlood     = "too many queries"
	reasonMany      = "too many processes of one node"
)

// Stats are counts since the Hailer was made.
type Stats struct {
	Asked    uint64            // questions sent
	Answered uint64            // and those of others answered
	Heard    uint64            // answers that counted, again and again from the same process too
	Own      uint64            // datagrams of this node
	Refused  map[string]uint64 // datagrams refused, by reason
}

// counters counts, and remembers what has been logged: no more than there are reasons, for each interface.
type counters struct {
	mu     sync.Mutex // a leaf
	stats  Stats
	logged map[said]bool
}

type said struct{ netdev, what string }

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// first reports whether something is to be logged of an interface, and is not any more.
func (c *counters) first(netdev, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logged[said{netdev, what}] {
		return false
	}
	if c.logged == nil {
		c.logged = make(map[said]bool)
	}
	c.logged[said{netdev, what}] = true
	return true
}

// Foreign are the interfaces at which somebody was heard who has another key, or none where this process has one.
func (h *Hailer) Foreign() (all []string) {
	h.count.mu.Lock()
	defer h.count.mu.Unlock()
	for s := range h.count.logged {
		if s.what == reasonMAC {
			all = append(all, s.netdev)
		}
	}
	slices.Sort(all)
	return all
}

// refuse counts a datagram, and logs the first of its kind on an interface.
func (h *Hailer) refuse(at place, from netip.AddrPort, reason string, err error) {
	h.count.add(func(s *Stats) {
		if s.Refused == nil {
			s.Refused = make(map[string]uint64)
		}
		s.Refused[reason]++
	})
	if !h.count.first(at.Netdev, reason) {
		return
	}
	args := []any{"interface", at.Netdev, "from", from, "reason", reason}
	if err != nil {
		args = append(args, "error", err)
	}
	h.log.Warn("neighbour discovery: refused a datagram; more of this kind on this interface are only counted", args...)
}

// explain sorts what can be wrong with a datagram's bytes.
func explain(err error) (reason string) {
	var version *handshake.VersionError
	switch {
	case errors.As(err, &version):
		return reasonVersion
	case errors.Is(err, handshake.ErrHailMAC):
		return reasonMAC
	}
	return reasonMalformed
}
