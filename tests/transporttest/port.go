package transporttest

import (
	"log/slog"
	"net/netip"
	"testing"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/threads"
	"ncclmesh/transport/topology"
)

// VerbsPort opens the port of a simulated adapter, whose packets lead back to it, until the test ends. It returns the port's address and
// the adapter too.
func VerbsPort(t *testing.T, b *bus.Bus) (*verbs.Port, topology.Address, *adapter.Device) {
	t.Helper()
	addr := netip.MustParseAddr("::ffff:10.0.0.1")
	f := adapter.New(b)
	d := f.AddDevice("a", "rdma0", adapter.Usual)
	f.Connect(adapter.LinkConfig{}, d.AddPort(adapter.PortConfig{GIDs: []adapter.GID{{GID: addr.As16(), Type: ibv.IBV_GID_TYPE_ROCE_V2}}}))
	lib := ibv.Use(f.Process("a", "test"))
	devices, err := lib.Devices()
	if err != nil {
		t.Fatal(err)
	}
	closing := make(chan struct{})
	from := topology.Address{Addr: addr, Type: topology.GIDTypeRoCEv2}
	p, err := verbs.Open(lib, devices[0], topology.Port{Device: "rdma0", Num: 1, GIDs: []topology.Address{from}, Active: true, LinkLayer: ibv.IBV_LINK_LAYER_ETHERNET}, 0,
		verbs.Options{Timeout: 14, RetryCount: 7, RNRRetry: 7, Resolving: threads.New(2, clock.Clock{}, closing), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		close(closing)
	})
	return p, from, d
}
