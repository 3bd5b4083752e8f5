package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// Messages lie in GPU memory, which the processor cannot reach and where what adapters write arrives late: between neighbours
// and through relays, while cables fail and ports join. After each receive the rank flushes.
func TestGPUMemory(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		c := mesh.Traffic(10+int(d.Uint64N(100)), 1<<uint(d.Uint64N(21)))
		c.Memory = []string{mesh.GPUMemory, mesh.DMABufs, mesh.MixedMemory}[d.Uint64N(3)]
		if d.Chance(0.4) {
			s.Row(3+int(d.Uint64N(2)), 1+int(d.Uint64N(2)), true)
		} else {
			s.Ring(2+int(d.Uint64N(4)), 1+int(d.Uint64N(3)), true)
		}
		s.Settings = waiting("rdma")
		if d.Chance(0.7) {
			s.Faults = s.Plan(1+int(d.Uint64N(10)), 1500*time.Millisecond, 8*time.Second)
		}
		if d.Chance(0.5) {
			c.Ranges = d.LogUniform(2, 40)
		}
		if d.Chance(0.5) {
			s.ConnectRing(c)
		} else {
			c.Messages = c.Messages/4 + 1
			s.ConnectAll(c)
		}
		heal(s, d.Chance(0.3))
		return s
	})
}
