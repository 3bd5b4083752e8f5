package discovery

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"ncclmesh/handshake"
)

// Reasons for refusing a datagram, as they are counted and logged.
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

// Stats are counters since the Discovery was made.
type Stats struct {
	Asked    uint64            // queries sent
	Answered uint64            // replies sent
	Heard    uint64            // valid replies received, also repeated ones of the same process
	Own      uint64            // datagrams of this node received
	Refused  map[string]uint64 // datagrams refused, by reason
}

// counters holds the statistics, and remembers what has been logged: at most one entry for each interface and reason.
type counters struct {
	mu     sync.Mutex // a leaf lock
	stats  Stats
	logged map[logKey]bool
}

type logKey struct{ netdev, what string }

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// first reports whether this is its first call for an interface and a reason, so that each is logged once.
func (c *counters) first(netdev, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logged[logKey{netdev, what}] {
		return false
	}
	if c.logged == nil {
		c.logged = make(map[logKey]bool)
	}
	c.logged[logKey{netdev, what}] = true
	return true
}

// Foreign returns the interfaces on which a datagram with a wrong MAC arrived: from a node with another key, or with no
// key while this process has one.
func (disc *Discovery) Foreign() (all []string) {
	disc.count.mu.Lock()
	defer disc.count.mu.Unlock()
	for s := range disc.count.logged {
		if s.what == reasonMAC {
			all = append(all, s.netdev)
		}
	}
	slices.Sort(all)
	return all
}

// Refused begins the message of the warning about a refused datagram. The warning names the sender, so that there are many of the same
// kind: a program that collects warnings keeps only the attributes "interface" and "error" of it.
const Refused = "neighbour discovery: refused a datagram"

// refuse counts a refused datagram, and logs the first one for each interface and reason.
func (disc *Discovery) refuse(at iface, from netip.AddrPort, reason string, err error) {
	disc.count.add(func(s *Stats) {
		if s.Refused == nil {
			s.Refused = make(map[string]uint64)
		}
		s.Refused[reason]++
	})
	if !disc.count.first(at.Netdev, reason) {
		return
	}
	args := []any{"interface", at.Netdev, "from", from, "reason", reason}
	if err != nil {
		args = append(args, "error", err)
	}
	disc.log.Warn(Refused+"; more of this kind on this interface are only counted", args...)
}

// explain returns the reason for refusing a datagram that could not be decoded.
func explain(err error) (reason string) {
	var version *handshake.VersionError
	switch {
	case errors.As(err, &version):
		return reasonVersion
	case errors.Is(err, handshake.ErrNeighbourMAC):
		return reasonMAC
	}
	return reasonMalformed
}
