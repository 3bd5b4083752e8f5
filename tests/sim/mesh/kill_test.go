package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// A process dies, or its machine loses its power. Each of its connections fails at the other end in bounded time, with an error that names its node; all
// others go on to their end, also those that it relayed.
func TestProcessDies(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := []string{"tcp", "auto", "rdma"}[d.Uint64N(3)]
		s.Ring(2+int(d.Uint64N(4)), 1+int(d.Uint64N(2)), transport != "tcp")
		s.Settings["NCCL_MESH_TRANSPORT"] = transport
		c := mesh.Traffic(10+int(d.Uint64N(200)), 1<<uint(d.Uint64N(21)))
		if d.Chance(0.5) {
			s.ConnectRing(c)
		} else {
			c.Messages = c.Messages/4 + 1
			s.ConnectAll(c)
		}
		dead := s.Machines[d.Uint64N(uint64(len(s.Machines)))]
		death := mesh.Fault{Cable: -1, Machine: dead, Kind: "killed"}
		if d.Chance(0.4) {
			death.Kind = "loses power"
		}
		death.At = 60*time.Millisecond + d.Between(0, 2*time.Second)
		s.Faults = append(s.Faults, death)
		s.Expect.Deaths, s.Expect.Within = []string{dead}, 5*time.Minute
		return s
	})
}
