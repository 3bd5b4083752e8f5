package control

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/tests/sim/internet"
)

// speed is the speed of links that are fast but take some time.
var speed = internet.LinkConfig{Rate: 1e9, Latency: 10 * time.Microsecond, Jitter: time.Microsecond}

// cabled is two nodes that are connected by a management network and by a cable: next at a, prev at b.
type cabled struct {
	t        *hosts.Test
	a, b     *node
	next     *internet.Interface
	mgmt     netip.Addr // addresses of b
	cable    netip.Addr // IPv4
	linkOnly netip.Addr // IPv6 of the cable
}

func newCabled(t *hosts.Test) *cabled {
	t.Helper()
	a, b := t.Host("a"), t.Host("b")
	managed := []*internet.Interface{a.AddInterface("mgmt0", netip.MustParsePrefix("10.0.0.1/24")), b.AddInterface("mgmt0", netip.MustParsePrefix("10.0.0.2/24"))}
	t.Net.Connect(internet.LinkConfig{Rate: 1e8, Latency: 100 * time.Microsecond, Switch: true}, managed...)
	next, prev := a.AddInterface("next", netip.MustParsePrefix("192.168.1.1/24")), b.AddInterface("prev", netip.MustParsePrefix("192.168.1.2/24"))
	t.Net.Connect(speed, next, prev)
	c := &cabled{t: t, next: next, mgmt: netip.MustParseAddr("10.0.0.2"), cable: netip.MustParseAddr("192.168.1.2")}
	for _, p := range prev.Prefixes() {
		if p.Addr().IsLinkLocalUnicast() {
			c.linkOnly = p.Addr()
		}
	}
	on := func(host, addr string) *node {
		return newNodeOn(t, host, func(c *Config) {
			c.Addrs = []netip.Addr{netip.MustParseAddr(addr)}
			c.NeighbourSecret = &public
			c.Cable = func(netdev string) bool { return netdev == "prev" || netdev == "next" }
			c.Busy = func(*Session) bool { return false }
		})
	}
	c.a, c.b = on("a", "10.0.0.1"), on("b", "10.0.0.2")
	return c
}

// dial makes a dial b as its neighbour over an interface.
func (c *cabled) dial(to netip.Addr, netdev string, wait time.Duration) (*Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if to.Is6() {
		to = to.WithZone(netdev)
	}
	return c.a.DialNeighbour(ctx, c.b.cfg.Process, public, netip.AddrPortFrom(to, c.b.Port()), netdev)
}

// over makes a session of neighbours over the cable, and sends a message.
func (c *cabled) over(to netip.Addr) *Session {
	c.t.Helper()
	s, err := c.dial(to, "next", hang)
	if err != nil {
		c.t.Fatal(err)
	}
	c.a.send(s, &handshake.Connected{Conn: 1})
	c.t.Until("the message", func() bool { return s.Unanswered() == 0 })
	if got := s.RemoteAddr().Addr(); !s.Neighbour() || got.WithZone("") != to || !s.Alive() {
		c.t.Errorf("the session is over %v, of a neighbour %v, alive %v", got, s.Neighbour(), s.Alive())
	}
	return s
}

// TestCable: a neighbour is dialled over a cable, and on an interface without one.
func TestCable(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		c := newCabled(t)
		_, h := c.b.invite()
		invited := c.a.dial(h)
		c.a.send(invited, &handshake.Connected{Conn: 1})

		var peer *PeerError
		if _, err := c.dial(c.mgmt, "mgmt0", hang); !errors.As(err, &peer) || !peer.Refused() {
			t.Errorf("to the management address: %v", err)
		}
		if s, err := c.dial(c.cable, "mgmt0", 5*time.Second); err == nil {
			t.Errorf("to the cable's address by the management network: %v", s)
		}
		s := c.over(c.cable)
		s.end(nil)
		<-s.ended

		s = c.over(c.linkOnly)
		s.Redial(errors.New("for a test"))
		t.Until("another link", func() bool { return c.a.Stats().Resumed > 0 || !s.Alive() })
		if got := c.a.Stats().Resumed; !s.Alive() || got != 1 {
			t.Errorf("alive %v, resumed %d times", s.Alive(), got)
		}
		c.next.SetUp(false)
		s.Redial(errors.New("the carrier is lost"))
		<-s.ended
		if s.Alive() || !invited.Alive() {
			t.Errorf("without the cable: the neighbour's session alive %v, the other %v", s.Alive(), invited.Alive())
		}
		if _, err := c.dial(c.linkOnly, "next", time.Second); !errors.As(err, &peer) || !strings.Contains(err.Error(), "check the cable at next") {
			t.Errorf("dialled without the cable: %v", err)
		}
		c.a.send(invited, &handshake.Connected{Conn: 2})
		t.Until("the answer", func() bool { return invited.Unanswered() == 0 })
		if got := c.b.Stats(); got.Accepted != 3 || got.Refused[reasonCable] != 1 {
			t.Errorf("at the other end: %+v", got)
		}
		if diff := cmp.Diff(conns(1, 2), c.b.messages(c.b.first(), 2)); diff != "" {
			t.Errorf("messages of the other session (-want +got):\n%s", diff)
		}
	})
}
