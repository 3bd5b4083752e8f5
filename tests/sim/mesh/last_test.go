package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Connections through a third machine have few messages and pause before each, so that they end at different times, and cables
// between the three die in one direction or in both. What the sender lacks then is known to the receiver alone, whose thread
// calls nothing once it has its last message.
func TestCablesFailAtLastMessages(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Row(3, 1+int(d.Uint64N(2)), true)
		s.Settings = waiting("rdma")
		k := &skew{Scenario: s, d: d}
		for _, c := range s.Cables {
			for _, m := range []string{c.From, c.To} {
				if d.Chance(0.7) {
					s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: m, Kind: "late", Amount: int64(d.LogUniform(100, 30_000)) * 1000})
				}
				if d.Chance(0.3) {
					s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: m, Kind: "completions late", Amount: int64(d.LogUniform(100, 10_000)) * 1000})
				}
			}
		}
		c := mesh.Traffic(0, 1<<d.Uint64N(18))
		c.Pauses = 100
		for range 4 + d.Uint64N(20) {
			c.Messages = 1 + int(d.Uint64N(8))
			k.Connect(0, 2, c)
		}
		for range 1 + d.Uint64N(3) {
			c := s.Cables[d.Uint64N(uint64(len(s.Cables)))]
			f := mesh.Fault{Cable: c.Number, Machine: c.To, Kind: "dead one way"} // nothing goes back
			switch d.Uint64N(5) {
			case 0:
				f.Machine = c.From
			case 1:
				f.Kind, f.Machine = "dead with a carrier", ""
			}
			f.At, f.Traffic, f.For = time.Duration(d.LogUniform(10_000, 400_000))*time.Microsecond, true, time.Duration(d.LogUniform(200_000, 3_000_000))*time.Microsecond
			s.Faults = append(s.Faults, f)
		}
		s.Expect.Within = time.Minute
		return s
	})
}
