package transport_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/sock"
)

// ranged is a network that fails its test when a socket is opened with another range of ports than its own.
type ranged struct {
	sock.Network
	t                  *testing.T
	ports              sock.PortRange
	dials, hears, asks *atomic.Int32
}

func (r ranged) used(n *atomic.Int32, what string, ports sock.PortRange) {
	if n.Add(1); ports != r.ports {
		r.t.Errorf("%s with ports %v, want %v", what, ports, r.ports)
	}
}

func (r ranged) Dial(ctx context.Context, from sock.From, to netip.AddrPort) (sock.Conn, error) {
	r.used(r.dials, "dial", from.Ports)
	return r.Network.Dial(ctx, from, to)
}

func (r ranged) Listen(at netip.AddrPort, netdev string, ports sock.PortRange) (sock.Listener, error) {
	r.used(r.hears, "listen", ports)
	return r.Network.Listen(at, netdev, ports)
}

func (r ranged) Ask(on sock.Interface, source netip.Addr, ports sock.PortRange) (sock.Packets, error) {
	r.used(r.asks, "ask", ports)
	return r.Network.Ask(on, source, ports)
}

// All sockets of a process keep to the ports that the user names: those of sessions, of lanes, and of neighbour discovery.
func TestPortRange(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var dials, hears, asks atomic.Int32
		keep := func(o *transport.Options) {
			o.PortRange = sock.PortRange{First: 40000, Last: 40199}
			o.Machine.Network = ranged{o.Machine.Network, t, o.PortRange, &dials, &hears, &asks}
		}
		s, r := transporttest.PairTCP(t, 2, keep)
		if d, h, a := dials.Load(), hears.Load(), asks.Load(); d < 5 || h < 4 || a == 0 { // a session and four lanes; two listeners of each process
			t.Errorf("%d dials, %d listeners and %d queries, want 5, 4 and 1 or more", d, h, a)
		}
		transporttest.CloseBoth(t, s, r)
	})
}
