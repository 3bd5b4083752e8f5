package discovery

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/sock"
)

var equalAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// book is a log that tests read.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *book) count(s string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), s)
}

// newDiscovery makes a Discovery with a log, by default without ports.
func newDiscovery(t *hosts.Test, change func(*Config)) (*Discovery, *book) {
	t.Helper()
	return newDiscoveryOn(t, "host", change)
}

// newDiscoveryOn makes a Discovery of a separate process on a host.
func newDiscoveryOn(t *hosts.Test, host string, change func(*Config)) (*Discovery, *book) {
	t.Helper()
	b, p := &book{}, t.Process(host)
	cfg := Config{
		Process: handshake.ProcessID{1}, Node: handshake.NodeID{1}, ControlPort: 4711,
		Ports:   func() []Port { return nil },
		Log:     slog.New(slog.NewTextHandler(b, nil)),
		Network: p, Clock: p.Clock(), Random: p.Random(),
	}
	if change != nil {
		change(&cfg)
	}
	disc, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disc.Close(); err != nil {
			t.Error(err)
		}
	})
	return disc, b
}

var (
	cableAt = iface{Port{Index: 3, Netdev: "prev", RDMA: true}, 7}
	ll      = netip.MustParseAddr("fe80::1")
	peerLL  = netip.MustParseAddr("fe80::2")
	peerV4  = netip.MustParseAddr("10.0.0.2")
	ownV4   = netip.MustParseAddr("10.0.0.1")
)

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}

// TestParseQuery: valid queries are answered, and others are refused with a reason.
func TestParseQuery(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		disc, _ := newDiscovery(t, func(c *Config) { c.Key = []byte("k") })
		ask := func(change func(*handshake.NeighbourQuery)) []byte {
			m := &handshake.NeighbourQuery{Nonce: handshake.NeighbourNonce{5}, Process: handshake.ProcessID{2}, Node: handshake.NodeID{2}, Name: "next"}
			if change != nil {
				change(m)
			}
			return must(handshake.SealNeighbourQuery(disc.secret, m))
		}
		version := ask(nil)
		version[2]++
		tests := []struct {
			name   string
			change func(*sock.Datagram)
			reason string
			own    bool
		}{
			{"a question", nil, "", false},
			{"sent to this node alone", func(d *sock.Datagram) { d.To = ll }, reasonGroup, false},
			{"sent to another group", func(d *sock.Datagram) { d.To = netip.MustParseAddr("ff02::1") }, reasonGroup, false},
			{"by another interface", func(d *sock.Datagram) { d.Index = 8 }, reasonPort, false},
			{"by no interface that is known", func(d *sock.Datagram) { d.Index = 0 }, reasonPort, false},
			{"through a router", func(d *sock.Datagram) { d.Hops = 254 }, reasonHops, false},
			{"with the usual hop limit", func(d *sock.Datagram) { d.Hops = 64 }, reasonHops, false},
			{"with a hop limit that is not known", func(d *sock.Datagram) { d.Hops = 0 }, reasonHops, false},
			{"too long", func(d *sock.Datagram) { d.Cut = true }, reasonMalformed, false},
			{"too short", func(d *sock.Datagram) { d.Bytes = d.Bytes[:20] }, reasonMalformed, false},
			{"empty", func(d *sock.Datagram) { d.Bytes = nil }, reasonMalformed, false},
			{"of another protocol", func(d *sock.Datagram) { d.Bytes = []byte("M-SEARCH * HTTP/1.1\r\n\r\n") }, reasonMalformed, false},
			{"of another version", func(d *sock.Datagram) { d.Bytes = version }, reasonVersion, false},
			{"without the key", func(d *sock.Datagram) {
				d.Bytes = must(handshake.SealNeighbourQuery(handshake.NeighbourSecret(nil), &handshake.NeighbourQuery{Node: handshake.NodeID{2}}))
			}, reasonMAC, false},
			{"an answer", func(d *sock.Datagram) {
				d.Bytes = must(handshake.SealNeighbourReply(disc.secret, &handshake.NeighbourReply{Node: handshake.NodeID{2}, Control: 1}))
			}, reasonMalformed, false},
			{"of this node", func(d *sock.Datagram) { d.Bytes = ask(func(m *handshake.NeighbourQuery) { m.Node = disc.cfg.Node }) }, "", true},
			{"of this process", func(d *sock.Datagram) {
				d.Bytes = ask(func(m *handshake.NeighbourQuery) { m.Process = disc.cfg.Process })
			}, "", true},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *hosts.Test) {
				d := &sock.Datagram{Bytes: ask(nil), From: netip.AddrPortFrom(peerLL, 9), To: group6, Index: 7, Hops: 255}
				if tt.change != nil {
					tt.change(d)
				}
				nonce, reason, _ := disc.parseQuery(&socket{at: cableAt, six: true}, d)
				if reason != tt.reason || (nonce == nil) != (tt.own || tt.reason != "") {
					t.Errorf("nonce %v, reason %q; want %q, own %v", nonce, reason, tt.reason, tt.own)
				}
				if nonce != nil && *nonce != (handshake.NeighbourNonce{5}) {
					t.Errorf("nonce %v", *nonce)
				}
			})
		}
	})
}

// TestParseReply: valid replies are accepted, and others are refused with a reason.
func TestParseReply(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		disc, _ := newDiscovery(t, nil)
		say := func(change func(*handshake.NeighbourReply)) []byte {
			m := &handshake.NeighbourReply{Nonce: handshake.NeighbourNonce{5}, Process: handshake.ProcessID{2}, Node: handshake.NodeID{2}, Control: 80}
			if change != nil {
				change(m)
			}
			return must(handshake.SealNeighbourReply(disc.secret, m))
		}
		tests := []struct {
			name   string
			six    bool
			change func(*sock.Datagram)
			reason string
			own    bool
		}{
			{"over IPv4", false, nil, "", false},
			{"over IPv6", true, nil, "", false},
			{"to all", true, func(d *sock.Datagram) { d.To = group6 }, reasonGroup, false},
			{"to another address of this node", false, func(d *sock.Datagram) { d.To = peerV4 }, reasonGroup, false},
			{"from an address of the whole net", true, func(d *sock.Datagram) {
				d.From = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::1"), 9)
			}, reasonGroup, false},
			{"by another interface", false, func(d *sock.Datagram) { d.Index = 8 }, reasonPort, false},
			{"through a router", false, func(d *sock.Datagram) { d.Hops = 254 }, reasonHops, false},
			{"of an earlier question", false, func(d *sock.Datagram) {
				d.Bytes = say(func(m *handshake.NeighbourReply) { m.Nonce = handshake.NeighbourNonce{4} })
			}, reasonNonce, false},
			{"a question", false, func(d *sock.Datagram) {
				d.Bytes = must(handshake.SealNeighbourQuery(disc.secret, &handshake.NeighbourQuery{}))
			}, reasonMalformed, false},
			{"under another key", false, func(d *sock.Datagram) {
				d.Bytes = must(handshake.SealNeighbourReply(handshake.NeighbourSecret([]byte("k")), &handshake.NeighbourReply{Control: 1}))
			}, reasonMAC, false},
			{"of this node", false, func(d *sock.Datagram) {
				d.Bytes = say(func(m *handshake.NeighbourReply) { m.Node = disc.cfg.Node })
			}, "", true},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *hosts.Test) {
				m := &querySocket{socket: &socket{at: cableAt, six: tt.six}, source: ownV4, nonce: handshake.NeighbourNonce{5}}
				d := &sock.Datagram{Bytes: say(nil), From: netip.AddrPortFrom(peerV4, 9), To: ownV4, Index: 7, Hops: 255}
				if tt.six {
					d.From, d.To = netip.AddrPortFrom(peerLL, 9), ll
				}
				if tt.change != nil {
					tt.change(d)
				}
				answer, reason, _ := disc.parseReply(m, d)
				if reason != tt.reason || (answer == nil) != (tt.own || tt.reason != "") {
					t.Errorf("answer %v, reason %q; want %q, own %v", answer, reason, tt.reason, tt.own)
				}
			})
		}
	})
}

// TestRecord: a process that replies is known once until the ports change, by the address that is surely on the cable.
func TestRecord(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		told := 0
		disc, _ := newDiscovery(t, func(c *Config) { c.OnNeighbour = func() { told++ } })
		m := &querySocket{socket: &socket{at: cableAt, six: true}, source: ownV4, nonce: handshake.NeighbourNonce{5}}
		hear := func(process, node byte, from netip.Addr) {
			m.six = from.Is6()
			d := &sock.Datagram{From: netip.AddrPortFrom(from, 9), To: ownV4, Index: 7, Hops: 255}
			if m.six {
				d.To = ll
			}
			d.Bytes = must(handshake.SealNeighbourReply(disc.secret, &handshake.NeighbourReply{
				Nonce: m.nonce, Process: handshake.ProcessID{process}, Node: handshake.NodeID{node}, Control: 80, Port: 5, Name: "next", Dedicated: process == 4,
			}))
			disc.handleReply(m, d)
		}
		want := func(process, node byte, control string) Neighbour {
			return Neighbour{Port: 3, Name: "prev", Process: handshake.ProcessID{process}, Node: handshake.NodeID{node}, Dedicated: process == 4,
				PeerPort: 5, PeerName: "next", Control: netip.MustParseAddrPort(control)}
		}
		hear(3, 2, peerV4)
		hear(4, 2, peerLL)
		hear(4, 2, peerV4)
		if diff := cmp.Diff([]Neighbour{want(3, 2, "10.0.0.2:80"), want(4, 2, "[fe80::2%prev]:80")}, disc.Neighbours(), equalAddrs); diff != "" || told != 2 {
			t.Errorf("told %d times, want 2 (-want +got):\n%s", told, diff)
		}
		hear(3, 2, peerLL)
		if diff := cmp.Diff(want(3, 2, "[fe80::2%prev]:80"), disc.Neighbours()[0], equalAddrs); diff != "" || told != 2 {
			t.Errorf("told %d times, want 2 (-want +got):\n%s", told, diff)
		}
		disc.Forget(handshake.ProcessID{3})
		disc.Forget(handshake.ProcessID{9})
		if diff := cmp.Diff([]Neighbour{want(4, 2, "[fe80::2%prev]:80")}, disc.Neighbours(), equalAddrs); diff != "" {
			t.Errorf("after one was forgotten (-want +got):\n%s", diff)
		}
		for p := range byte(maxProcesses) {
			hear(100+p, 2, peerLL)
		}
		if got, refused := len(disc.Neighbours()), disc.Stats().Refused[reasonMany]; got != maxProcesses || refused != 1 {
			t.Errorf("%d processes of one node, %d refused; want %d and 1", got, refused, maxProcesses)
		}
		disc.Changed()
		hear(3, 2, peerLL) // an answer to what was asked before
		if got := disc.Neighbours(); len(got) != 0 {
			t.Errorf("after the ports changed: %v", got)
		}
	})
}

// TestSwitch: an interface with more nodes than a cable can have is no cable, and that is logged once.
func TestSwitch(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		disc, b := newDiscovery(t, nil)
		m := &querySocket{socket: &socket{at: cableAt}}
		other := &querySocket{socket: &socket{at: iface{Port{Index: 4, Netdev: "next"}, 8}}}
		disc.record(other, &handshake.NeighbourReply{Process: handshake.ProcessID{2}, Node: handshake.NodeID{2}, Control: 1}, peerV4)
		for n := range byte(maxNodes + 4) {
			disc.record(m, &handshake.NeighbourReply{Process: handshake.ProcessID{2 + n}, Node: handshake.NodeID{2 + n}, Control: 1}, peerV4)
			want := int(n) + 1
			if want > maxNodes {
				want = 0
			}
			if got := len(disc.Neighbours()) - 1; got != want {
				t.Errorf("%d neighbours of %d nodes", got, n+1)
			}
			var switches []string
			if want == 0 {
				switches = []string{cableAt.Netdev}
			}
			if diff := cmp.Diff(switches, disc.switches([]Port{cableAt.Port, other.at.Port})); diff != "" {
				t.Errorf("switches with %d nodes (-want +got):\n%s", n+1, diff)
			}
		}
		if got := b.count("leads to a switch"); got != 1 {
			t.Errorf("%d lines about a switch", got)
		}
	})
}

// TestInterfaces: an interface is listed once, for the device that has it.
func TestInterfaces(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		for _, running := range []bool{true, false} {
			t.Host("b").Interface("prev").SetUp(running)
			disc, _ := newDiscoveryOn(t, "a", func(c *Config) {
				c.Ports = func() []Port {
					return []Port{{Index: 1}, {Index: 2, Netdev: "next"}, {Index: 3, Netdev: "none-such"}, {Index: 4, Netdev: "next", RDMA: true}, {Index: 5, Netdev: "next", RDMA: true}}
				}
			})
			want := []iface{{Port{Index: 4, Netdev: "next", RDMA: true}, t.Host("a").Interface("next").Index()}}
			all, heard := disc.ifaces()
			same := cmp.AllowUnexported(iface{})
			if diff := cmp.Diff(want, all, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !running {
				want = nil
			}
			if diff := cmp.Diff(want, heard, same); diff != "" {
				t.Errorf("with a carrier (-want +got):\n%s", diff)
			}
		}
	})
}

func TestRefusedConfig(t *testing.T) {
	for _, cfg := range []Config{{Ports: func() []Port { return nil }}, {ControlPort: 1}} {
		if disc, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
			_ = disc.Close()
		}
	}
}

// TestCloseLeavesNothing: Close during a round, after it, and again.
func TestCloseLeavesNothing(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		for _, wait := range []bool{false, true} {
			disc, _ := newDiscoveryOn(t, "a", func(c *Config) { c.Ports = func() []Port { return []Port{next} } })
			p := disc.network.(*hosts.Process)
			disc.Changed()
			disc.Solicit()
			done := disc.Done()
			if wait {
				<-done
			} else {
				t.Sleep(queryInterval)
			}
			if disc.Stats().Asked == 0 || len(p.Open()) == 0 {
				t.Errorf("it has not asked: %+v, open %v", disc.Stats(), p.Open())
			}
			for range 2 {
				if err := disc.Close(); err != nil {
					t.Error(err)
				}
			}
			<-done
			disc.Solicit()
			<-disc.Done()
			if left := p.Open(); len(left) != 0 {
				t.Errorf("left open: %v", left)
			}
		}
	})
}

// TestTakenPort: a port in use by another program is logged in one line that names it.
func TestTakenPort(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		i := t.Host("a").Interface("next")
		c, err := t.Process("a").Ask(sock.Interface{Name: "next", Index: i.Index()}, netip.IPv4Unspecified(), sock.PortRange{First: UDPPort, Last: UDPPort})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		disc, b := newDiscoveryOn(t, "a", func(c *Config) { c.Ports = func() []Port { return []Port{next} } })
		disc.Solicit()
		<-disc.Done()
		if got := b.count(fmt.Sprintf("port=%d interface=next", UDPPort)); got != 1 || b.count("another program has this UDP port to itself") != 1 {
			t.Errorf("%d lines name port %d:\n%s", got, UDPPort, b.String())
		}
	})
}

// TestSharedPort: processes of one node listen on the same port.
func TestSharedPort(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		for range 3 {
			_, b := newDiscoveryOn(t, "a", func(c *Config) { c.Ports = func() []Port { return []Port{next} } })
			if got := b.count("level=WARN"); got != 0 {
				t.Errorf("warnings:\n%s", b.String())
			}
		}
	})
}
