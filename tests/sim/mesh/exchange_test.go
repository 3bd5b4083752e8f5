package mesh_test

import (
	"testing"

	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/mesh"
)

// exchanging makes each play scenarios with exchanges in the place of connections.
var exchanging bool

// exchange runs a test that draws jobs of connections with exchanges in their place.
func exchange(t *testing.T, test func(*testing.T)) {
	exchanging = true
	defer func() { exchanging = false }()
	test(t)
}

// exchanged returns a scenario with exchanges in the place of its connections, some of which stay.
func exchanged(s *mesh.Scenario) *mesh.Scenario {
	d := draw.New(s.Seed).Stream("exchanges")
	stay := d.Chance(0.2)
	s.Exchange(func() bool { return stay && d.Chance(0.5) })
	return s
}

// Processes put bytes into each other's windows, signal, and get bytes, under all faults. When a signal is seen the bytes of all puts
// before it are there, each signal changes its word once, and nothing outside a window, or in one that has ended, is written.
func TestExchange(t *testing.T)                    { exchange(t, TestNoFault) }
func TestExchangeThroughRelays(t *testing.T)       { exchange(t, TestNoFaultThroughRelays) }
func TestExchangeSkewedCables(t *testing.T)        { exchange(t, TestSkewedCables) }
func TestExchangeSkewedRelays(t *testing.T)        { exchange(t, TestSkewedRelays) }
func TestExchangeDetours(t *testing.T)             { exchange(t, TestDetours) }
func TestExchangeLatePorts(t *testing.T)           { exchange(t, TestLatePorts) }
func TestExchangeCablesFail(t *testing.T)          { exchange(t, TestCablesFail) }
func TestExchangeRDMACablesFail(t *testing.T)      { exchange(t, TestRDMACablesFail) }
func TestExchangeLinesStutter(t *testing.T)        { exchange(t, TestLinesStutter) }
func TestExchangeCablesGoAsPortJoins(t *testing.T) { exchange(t, TestCablesGoAsPortJoins) }
func TestExchangeStoppedAsLanesFail(t *testing.T)  { exchange(t, TestStoppedAsLanesFail) }
func TestExchangeProcessIsStopped(t *testing.T)    { exchange(t, TestProcessIsStopped) }
func TestExchangeGPUMemory(t *testing.T)           { exchange(t, TestGPUMemory) }
func TestExchangeProcessDies(t *testing.T)         { exchange(t, TestProcessDies) }
