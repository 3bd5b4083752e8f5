package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// All cables between two machines fail at about the same time while connections are set up, often between the search for paths
// and the set-up of lanes over them, and come back later. The connections wait for them.
func TestCablesFailInSetUp(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := []string{"rdma", "rdma", "auto", "tcp"}[d.Uint64N(4)]
		s.Ring(2, 1+int(d.Uint64N(3)), transport != "tcp")
		s.Settings = waiting(transport)
		s.ConnectAll(mesh.Traffic(1+int(d.Uint64N(50)), 1<<d.Uint64N(20)))
		kinds := []string{"dead with a carrier", "dead one way", "cut", "port off"}
		if transport != "tcp" {
			kinds = append(kinds, "RDMA off")
		}
		k := &skew{Scenario: s, d: d}
		kind := kinds[d.Uint64N(uint64(len(kinds)))]
		late := time.Duration(d.LogUniform(500, 10_000)) * time.Microsecond // a set-up takes some twenty times as long
		for _, m := range s.Machines {
			s.Faults = append(s.Faults, mesh.Fault{Cable: -1, Machine: m, Kind: "late", Amount: int64(late)})
		}
		at, spread := k.between(20*time.Millisecond, 50*time.Millisecond+20*late), time.Duration(d.LogUniform(1, 2000))*time.Microsecond
		for _, c := range s.Cables {
			if transport != "tcp" && d.Chance(0.3) { // lanes take longer to make
				f := k.at(c, "registration slow")
				f.Amount = int64(d.LogUniform(10, 5000)) * 1000
				s.Faults = append(s.Faults, f)
			}
			f := k.at(c, kind)
			if kind == "dead with a carrier" || kind == "cut" {
				f.Machine = ""
			}
			f.At, f.For = at+k.between(0, spread), time.Duration(d.LogUniform(100_000, 5_000_000))*time.Microsecond
			s.Faults = append(s.Faults, f)
		}
		s.Expect.Within, s.Expect.Healed = time.Minute, time.Minute
		return s
	})
}
