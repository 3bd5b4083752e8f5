package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Lanes over all cables but one fail at about the same time, again and again, and about then a process is stopped for a moment. What its
// peer and the adapters do meanwhile has consequences that it sees all at once.
func TestStoppedAsLanesFail(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(2, 3+int(d.Uint64N(5)), true)
		s.Settings = waiting("rdma")
		k := &skew{Scenario: s, d: d}
		for _, c := range s.Cables {
			for _, m := range s.Machines {
				if d.Chance(0.5) {
					late := mesh.Fault{Cable: c.Number, Machine: m, Kind: "late", Amount: int64(d.LogUniform(300, 20_000)) * 1000}
					s.Faults = append(s.Faults, late)
				}
			}
		}
		for _, c := range s.Cables {
			if d.Chance(0.4) { // grants wait in the adapter
				slow := mesh.Fault{Cable: c.Number, Machine: c.To, Kind: "slow", Amount: int64(d.LogUniform(300, 20_000)) * 1000}
				s.Faults = append(s.Faults, slow)
			}
		}
		c := k.traffic()
		c.Window, c.Group, c.Pauses = 256, 1, 0
		if d.Chance(0.6) { // most messages go in as many parts as there are lanes
			s.Settings["NCCL_MESH_STRIPE_THRESHOLD"] = "256"
			c.Messages, c.Largest = 300+int(d.Uint64N(1500)), 1<<(14+d.Uint64N(4))
		}
		s.Connect(0, 1, c)
		at := time.Duration(0)
		for range 2 + d.Uint64N(12) {
			at += k.between(time.Millisecond, 40*time.Millisecond)
			spared := int(d.Uint64N(uint64(len(s.Cables))))
			last, pace := at, time.Duration(d.LogUniform(1, 10_000))*time.Microsecond
			for i := range s.Cables {
				c := s.Cables[(spared+1+i)%len(s.Cables)]
				if c.Number == s.Cables[spared].Number {
					continue
				}
				f := k.at(c, "queue pairs fail")
				f.At, f.Traffic, f.Amount = last, true, int64(d.Uint64N(100))
				s.Faults = append(s.Faults, f)
				last += k.between(0, pace)
			}
			then := last + time.Duration(d.LogUniform(100, 10_000))*time.Microsecond
			if d.Chance(0.5) { // the peer knows of a lane that has failed 200 µs later
				then = 200*time.Microsecond + k.between(at, last)
			}
			f := stopped(s.Machines[d.Uint64N(2)], then, time.Duration(d.LogUniform(500, 40_000))*time.Microsecond)
			if d.Chance(0.25) {
				f.For = k.between(600*time.Millisecond, 2*time.Second)
			}
			f.Traffic = true
			s.Faults = append(s.Faults, f)
			at = max(last, f.At+f.For)
		}
		s.Expect.Grants = true
		return s
	})
}
