package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Memory is registered and given back while messages flow, and ports join that have no carrier at first and are slow to register
// what there is. Connections also end while a port joins.
func TestMemoryComesAndGoes(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(2, 2+int(d.Uint64N(2)), true)
		s.Settings = waiting([]string{"auto", "rdma"}[d.Uint64N(2)])
		k := &skew{Scenario: s, d: d}
		for _, c := range s.Cables[1:] {
			f := k.at(c, "port off")
			f.Until, f.For = true, time.Duration(d.LogUniform(10, 300_000))*time.Microsecond
			s.Faults = append(s.Faults, f)
			for _, m := range []string{c.From, c.To} {
				if d.Chance(0.7) {
					s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: m, Kind: "registration slow", Amount: int64(d.LogUniform(100, 60_000)) * 1000})
				}
			}
		}
		c := mesh.Traffic(d.LogUniform(1, 60), 1<<d.Uint64N(20))
		c.Pauses, c.Ranges = 100, d.LogUniform(2, 40)
		s.ConnectAll(c)
		heal(s, d.Chance(0.1))
		return s
	})
}
