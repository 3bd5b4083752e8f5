package world

import (
	"net/netip"
	"testing"
	"time"

	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/internet"
)

// A World is all machines of a simulation.
type World struct {
	T      *testing.T
	Bus    *bus.Bus
	Net    *internet.Internet
	Fabric *adapter.Fabric
	Clock  *bus.Source // for what the test does at a time

	draws    *draw.Source // random numbers of the processes
	machines []*Machine
}

// New makes a world without machines.
func New(t *testing.T, b *bus.Bus) *World {
	return &World{T: t, Bus: b, Net: internet.New(b), Fabric: adapter.New(b), Clock: b.Source("scenario"), draws: draw.New(^b.Seed())}
}

// Management joins all machines by a switch of 1 Gb/s.
func (w *World) Management() *internet.Link {
	var all []*internet.Interface
	for k, m := range w.machines {
		all = append(all, m.AddPort("mgmt0", 1000, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(1 + k)}), 24)))
	}
	return w.Net.Connect(internet.LinkConfig{Rate: 125e6, Latency: 100 * time.Microsecond, Jitter: 50 * time.Microsecond, Switch: true}, all...)
}
