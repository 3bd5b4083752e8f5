package mesh_test

import (
	"slices"
	"testing"
	"time"

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
	for _, x := range s.Exchanges {
		s.Expect.Grants = s.Expect.Grants && !slices.ContainsFunc(s.Faults, func(f mesh.Fault) bool { return holdsGrants(f, x) })
	}
	return s
}

// holdsGrants reports whether a fault makes a cable so slow that a grant may come half a second late, when it is taken for missing, because
// it waits in the adapter behind a few of the largest puts of its side.
func holdsGrants(f mesh.Fault, x mesh.Exchange) bool {
	return f.Kind == "slow" && f.Amount/2 < 4*int64(x.Largest)
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

// Two processes put little, in as many parts as there are lanes, and signal often, while lanes over all cables but one fail in one burst after
// another: parts of puts and signals are lost, sent again, and lost again over the lanes that were to carry them.
func TestExchangeBursts(t *testing.T) { exchangeBursts(t, mesh.HostMemory) }

// The bursts of TestExchangeBursts, with windows in GPU memory, where the bytes that a device writes arrive late.
func TestExchangeGPUBursts(t *testing.T) { exchangeBursts(t, mesh.GPUMemory) }

func exchangeBursts(t *testing.T, memory string) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(2, 2+int(d.Uint64N(4)), true)
		s.Settings = waiting("rdma")
		s.Settings["NCCL_MESH_STRIPE_THRESHOLD"] = "256"
		k := &skew{Scenario: s, d: d}
		for _, c := range s.Cables {
			for _, m := range s.Machines {
				if d.Chance(0.7) {
					s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: m, Kind: "late", Amount: int64(d.LogUniform(10, 3000)) * 1000})
				}
			}
		}
		s.Exchanges = []mesh.Exchange{{From: s.Machines[0], To: s.Machines[1], Operations: 100 + int(d.Uint64N(300)), Largest: 1 << (8 + d.Uint64N(7)), Pauses: int(d.Uint64N(2)), Window: 8 << d.Uint64N(4), Memory: memory}}
		at, pace := time.Duration(0), time.Duration(d.LogUniform(300, 20_000))*time.Microsecond
		for range 5 + d.Uint64N(20) {
			at += k.between(pace/2, 2*pace)
			spared, spread := d.Uint64N(uint64(len(s.Cables))), time.Duration(d.LogUniform(1, 5000))*time.Microsecond
			for i, c := range s.Cables {
				if i != int(spared) {
					k.fail(c, at+k.between(0, spread))
				}
			}
		}
		return s
	})
}
