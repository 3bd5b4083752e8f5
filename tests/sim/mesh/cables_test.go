package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// waiting are the settings of a job that waits for lanes for longer than any outage lasts.
func waiting(transport string) map[string]string {
	return map[string]string{"NCCL_MESH_TRANSPORT": transport, "NCCL_MESH_LANE_WAIT": "150"}
}

// heal expects of a scenario, or not, that all paths have their lanes again in time. A path that flaps is left alone for 10 s at
// most, and paths are looked for every 10 s at least. Where that is not expected, some of what is still under way meets the end.
func heal(s *mesh.Scenario, expected bool) {
	if expected {
		s.Expect.Healed = time.Minute
	}
}

// Two runs of a seed are one history, also while cables fail and a process is stopped.
func TestOneHistory(t *testing.T) {
	drawsNone(t)
	for name, rdma := range map[string]bool{"TCP": false, "RDMA": true} {
		t.Run(name, func(t *testing.T) {
			s, _ := mesh.NewScenario(firstSeed())
			s.Ring(3, 2, rdma)
			s.Faults = append(s.Plan(5, time.Second, time.Second), stopped("na", 300*time.Millisecond, 700*time.Millisecond))
			s.ConnectRing(mesh.Traffic(30, 1<<17))
			bus.Twice(t, s.Seed, func(t *testing.T, b *bus.Bus) { s.Run(t, b, nil) })
		})
	}
}

// A ring of 16 machines goes on while some of its cables fail.
func TestRingOfSixteen(t *testing.T) {
	drawsNone(t)
	s, _ := mesh.NewScenario(firstSeed())
	s.Ring(16, 1, true)
	s.Settings = waiting("auto")
	s.Faults = s.Plan(12, 1500*time.Millisecond, 4*time.Second)
	s.ConnectRing(mesh.Traffic(40, 1<<18))
	s.Connect(0, 8, mesh.Traffic(10, 1<<16)) // through seven others
	heal(s, true)
	mesh.Play(t, s)
}

// A job over TCP survives whatever happens to its cables.
func TestCablesFail(t *testing.T) { cablesFail(t, "tcp") }

// A job over RDMA does, with TCP as the last resort or without.
func TestRDMACablesFail(t *testing.T) { cablesFail(t, "auto", "rdma") }

// A job without faults loses no lane, and warns of nothing.
func TestNoFault(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := []string{"tcp", "auto", "rdma"}[d.Uint64N(3)]
		s.Ring(2+int(d.Uint64N(4)), 1+int(d.Uint64N(3)), transport != "tcp")
		s.Settings["NCCL_MESH_TRANSPORT"] = transport
		c := mesh.Traffic(1+int(d.Uint64N(50)), 1<<uint(d.Uint64N(21)))
		if d.Chance(0.5) {
			s.ConnectRing(c)
		} else {
			s.ConnectAll(c)
		}
		s.Expect.Calm, s.Expect.Within = true, time.Minute
		return s
	})
}

// So does one whose connections all lead through other machines. Its processes end one after the other.
func TestNoFaultThroughRelays(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Row(3+int(d.Uint64N(3)), 1+int(d.Uint64N(2)), true)
		s.Settings["NCCL_MESH_TRANSPORT"] = []string{"auto", "rdma"}[d.Uint64N(2)]
		c := mesh.Traffic(1+int(d.Uint64N(20)), 1<<d.Uint64N(18))
		last := len(s.Machines) - 1
		for range 1 + d.Uint64N(4) {
			s.Connect(0, last, c)
			if d.Chance(0.5) {
				s.Connect(last, 0, c)
			}
		}
		s.Expect.Calm, s.Expect.Within = true, time.Minute
		return s
	})
}

// cablesFail draws the machines, the cables, what talks to whom, and the faults. No outage lasts as long as lanes are waited
// for, so that no rank may fail.
func cablesFail(t *testing.T, transports ...string) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := transports[d.Uint64N(uint64(len(transports)))]
		s.Ring(2+int(d.Uint64N(4)), 1+int(d.Uint64N(3)), transport != "tcp")
		s.Settings = waiting(transport)
		s.Faults = s.Plan(1+int(d.Uint64N(12)), 1500*time.Millisecond, 8*time.Second)
		c := mesh.Traffic(10+int(d.Uint64N(200)), 1<<uint(d.Uint64N(23)))
		if d.Chance(0.5) {
			s.ConnectRing(c)
		} else {
			c.Messages = c.Messages/4 + 1
			s.ConnectAll(c)
		}
		heal(s, d.Chance(0.5))
		return s
	})
}
