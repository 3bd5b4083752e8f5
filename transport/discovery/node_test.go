package discovery

import (
	"net/netip"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/sock"
)

// fast is a fast link on which transmission still takes time.
var fast = internet.LinkConfig{Rate: 1e9, Latency: 10 * time.Microsecond, Jitter: time.Microsecond}

// spec describes a Discovery on a node.
type spec struct {
	Process, Node byte
	Control       uint16
	Dedicated     bool
	Key           []byte
	Ports         []Port
}

// node is a Discovery of a separate process.
type node struct {
	*Discovery
	*book
	t *hosts.Test
}

// join connects two hosts by a cable, from next at one to prev at the other.
func join(t *hosts.Test, number byte, from, to string) *internet.Link {
	t.Helper()
	addr := func(host byte) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, number, host}), 24)
	}
	return t.Net.Connect(fast, t.Host(from).AddInterface("next", addr(1)), t.Host(to).AddInterface("prev", addr(2)))
}

// line is two hosts, a and b, and a cable: next at a and prev at b.
func line(t *hosts.Test) { join(t, 1, "a", "b") }

// start starts a process; it listens when start returns.
func start(t *hosts.Test, host string, sp spec) *node {
	t.Helper()
	disc, b := newDiscoveryOn(t, host, func(c *Config) {
		c.Process, c.Node, c.ControlPort, c.Dedicated, c.Key = handshake.ProcessID{sp.Process}, handshake.NodeID{sp.Node}, sp.Control, sp.Dedicated, sp.Key
		c.Ports = func() []Port { return sp.Ports }
	})
	return &node{disc, b, t}
}

// asks runs a round of queries, and waits for its end.
func (n *node) asks() {
	n.Solicit()
	<-n.Done()
}

// finds runs rounds of queries until that many neighbours are known.
func (n *node) finds(neighbours int) {
	n.t.Helper()
	n.t.Until("neighbours", func() bool {
		if len(n.Neighbours()) < neighbours {
			n.asks()
		}
		return len(n.Neighbours()) >= neighbours
	})
}

// A stray is a socket that sends datagrams that no Discovery would send.
type stray struct {
	sock.Packets
	t      *hosts.Test
	on     *internet.Interface
	source netip.Addr
}

// newStray opens a stray on an interface of host a.
func newStray(t *hosts.Test, netdev string) *stray {
	t.Helper()
	p := t.Process("a")
	s := &stray{t: t, on: t.Host("a").Interface(netdev)}
	s.source = s.on.Prefixes()[0].Addr()
	var err error
	if s.Packets, err = p.Ask(sock.Interface{Name: netdev, Index: s.on.Index()}, s.source, sock.PortRange{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// says sends a datagram to the multicast group with a hop limit.
func (s *stray) says(b []byte, hops int) {
	s.t.Helper()
	s.on.Route(255 - hops)
	if err := s.Send(b, netip.AddrPortFrom(group4, UDPPort), s.source); err != nil {
		s.t.Fatal(err)
	}
	s.t.Sleep(time.Millisecond)
	s.on.Route(0)
}
