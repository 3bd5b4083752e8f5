package mesh_test

import (
	"fmt"
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Ends of cables say nothing for milliseconds, again and again, and adapters soon give up: a lane fails at one end and the other
// does not know, also one that has just come into service.
func TestLinesStutter(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(2, 1+int(d.Uint64N(2)), true)
		s.Settings = waiting("rdma")
		s.Settings["NCCL_IB_TIMEOUT"] = fmt.Sprint(4 + d.Uint64N(4))
		s.Settings["NCCL_IB_RETRY_CNT"] = fmt.Sprint(1 + d.Uint64N(2))
		k := &skew{Scenario: s, d: d}
		c := k.traffic()
		c.Pauses = 10 + int(d.Uint64N(50))
		s.ConnectAll(c)
		for _, c := range s.Cables {
			silent, speaks := time.Duration(d.LogUniform(500, 5000))*time.Microsecond, time.Duration(d.LogUniform(3000, 30_000))*time.Microsecond
			end := []string{c.From, c.To}[d.Uint64N(2)]
			for at := k.between(0, speaks); at < time.Second; at += silent {
				f := mesh.Fault{Cable: c.Number, Machine: end, Kind: "dead one way", At: at, Traffic: true, For: k.between(silent/2, silent)}
				s.Faults = append(s.Faults, f)
				at += k.between(speaks/2, speaks)
			}
		}
		s.Expect.Within = 2 * time.Minute
		heal(s, d.Chance(0.5))
		return s
	})
}
