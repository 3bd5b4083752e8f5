package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Two machines send each other many messages without a pause, over cables that fail for moments.
func TestBusyCablesFail(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := []string{"rdma", "rdma", "auto", "tcp"}[d.Uint64N(4)]
		s.Ring(2, 2+int(d.Uint64N(2)), transport != "tcp")
		s.Settings = waiting(transport)
		c := mesh.Traffic(0, 0)
		c.Pauses = int(d.Uint64N(4))
		within := time.Duration(d.LogUniform(10_000, 400_000)) * time.Microsecond
		plan := s.Plan(4+int(d.Uint64N(24)), within, within)
		for k := range plan {
			plan[k].Traffic = true
		}
		if transport != "tcp" && d.Chance(0.7) { // the sessions are slower than the lanes
			m := s.Machines[d.Uint64N(2)]
			s.Faults = append(s.Faults, mesh.Fault{Cable: -1, Machine: m, Kind: "late", Amount: int64(d.LogUniform(20, 20_000)) * 1000})
		}
		s.Faults = append(s.Faults, plan...)
		c.Largest = 1 << uint(6+d.Uint64N(16))
		if d.Chance(0.4) { // as many receives as there can be: the ring of grants is full
			c.Window, c.Largest = 256, min(c.Largest, 1<<13)
		}
		c.Messages = 500 + int(d.Uint64N(3500))
		s.ConnectAll(c)
		heal(s, d.Chance(0.5))
		return s
	})
}
