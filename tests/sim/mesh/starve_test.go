package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// One rank of a ring of RDMA machines is stopped for 0.2 s while connections are set up, on machines so busy that no process
// runs for long at a time. No rank fails, the job is over in time, and in the end nothing goes over TCP.
func TestStoppedInSetUp(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Ring(4, 1+int(d.Uint64N(2)), true)
		if d.Chance(0.5) {
			s.ConnectRing(mesh.Traffic(20, 1<<18))
		} else {
			s.ConnectAll(mesh.Traffic(10, 1<<18))
		}
		longest := d.LogUniform(1, 300) // ms that a process waits for a processor
		for _, m := range s.Machines {
			for at := d.Between(time.Millisecond, 100*time.Millisecond).Round(time.Microsecond); at < 3*time.Second; {
				f := stopped(m, at, time.Duration(d.LogUniform(100, 1000*longest))*time.Microsecond)
				s.Faults = append(s.Faults, f)
				at += f.For + time.Duration(d.LogUniform(1000, 100_000))*time.Microsecond
			}
		}
		at := d.Between(50*time.Millisecond, 550*time.Millisecond).Round(time.Microsecond)
		s.Faults = append(s.Faults, stopped(s.Machines[d.Uint64N(4)], at, 200*time.Millisecond))
		s.Expect.RDMA, s.Expect.Within, s.Expect.Healed = true, 2*time.Minute, time.Minute
		return s
	})
}
