package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Ports join a connection that has as many receives outstanding as there can be, whose grants are on their way over a slow cable. The
// sender is stopped at times, so that what lands meanwhile lies there unread: no grant is lost.
func TestPortsJoinFullWindow(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(2, 2+int(d.Uint64N(2)), true)
		s.Settings = waiting("rdma")
		k := &skew{Scenario: s, d: d}
		late := mesh.Fault{Cable: 0, Machine: s.Cables[0].To, Kind: "late", Amount: int64(d.LogUniform(5000, 40_000)) * 1000}
		s.Faults = append(s.Faults, late)
		for _, c := range s.Cables[1:] {
			f := k.at(c, "port off")
			f.Until, f.For = true, time.Duration(d.LogUniform(10, 10_000))*time.Microsecond
			s.Faults = append(s.Faults, f)
		}
		c := mesh.Traffic(3000+int(d.Uint64N(3000)), 1<<(4+d.Uint64N(10)))
		c.Window, c.Group, c.Pauses = 256, 1, int(d.Uint64N(2))
		s.Connect(0, 1, c)
		for at := 200 * time.Millisecond; at < 500*time.Millisecond; at += k.between(5*time.Millisecond, 30*time.Millisecond) { // ports join then
			f := stopped(s.Machines[0], at, k.between(time.Millisecond, 40*time.Millisecond))
			f.Traffic = true
			s.Faults = append(s.Faults, f)
			at += f.For
		}
		s.Expect.Grants = true
		return s
	})
}

// The cables that a connection began with are cut when another port joins it, for a while or for good: what was lost over them goes
// over that port, for which the grants that went before have no key.
func TestCablesGoAsPortJoins(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(2, 3, true)
		s.Settings = waiting("rdma")
		k := &skew{Scenario: s, d: d}
		joins := k.at(s.Cables[2], "port off")
		joins.Until, joins.For = true, time.Duration(d.LogUniform(10, 10_000))*time.Microsecond
		s.Faults = append(s.Faults, joins)
		at := k.between(200*time.Millisecond, 300*time.Millisecond) // about when it joins
		for _, c := range s.Cables[:2] {
			for _, m := range s.Machines {
				late := mesh.Fault{Cable: c.Number, Machine: m, Kind: "late", Amount: int64(d.LogUniform(100, 30_000)) * 1000}
				s.Faults = append(s.Faults, late)
			}
			cut := mesh.Fault{Cable: c.Number, Kind: "cut", At: at + k.between(0, 3*time.Millisecond), Traffic: true}
			if d.Chance(0.5) {
				cut.For = time.Duration(d.LogUniform(1000, 3_000_000)) * time.Microsecond
			}
			s.Faults = append(s.Faults, cut)
		}
		c := mesh.Traffic(200+int(d.Uint64N(400)), 1<<(17+d.Uint64N(3)))
		c.Window, c.Pauses = 1<<(3+d.Uint64N(4)), int(d.Uint64N(10))
		c.Group = min(c.Group, 1+int(d.Uint64N(8)))
		s.ConnectAll(c)
		return s
	})
}
