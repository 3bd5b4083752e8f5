package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// Two machines send each other many messages without a pause, over cables that fail for moments.
func TestBusyCablesFail(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			transport := []string{"rdma", "rdma", "auto", "tcp"}[s.Uint64N(4)]
			cables := ring(w, 2, 2+int(s.Uint64N(2)), transport != "tcp")
			j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": transport, "NCCL_MESH_LANE_WAIT": "150"}, w.Machines...)
			j.Pauses = 0.01 * float64(s.Uint64N(4))
			within := time.Duration(s.LogUniform(10_000, 400_000)) * time.Microsecond
			plan := w.Plan(cables, 4+int(s.Uint64N(24)), within, within)
			if transport != "tcp" && s.Chance(0.7) { // the sessions are slower than the lanes
				w.Machines[s.Uint64N(2)].Delay(time.Duration(s.LogUniform(20, 20_000)) * time.Microsecond)
			}
			var last time.Duration
			j.Begun = func() { last = b.Now() + w.Strike(plan) }
			most := 1 << uint(6+s.Uint64N(16))
			if s.Chance(0.4) { // as many receives as there can be: the ring of grants is full
				j.Window, most = 256, min(most, 1<<13)
			}
			j.All(500+int(s.Uint64N(3500)), most)
			j.Run(3 * time.Minute)
			if s.Chance(0.5) {
				j.Heal(last, healed)
			}
			j.End()
			if t.Failed() || testing.Verbose() {
				t.Logf("%s over %d cables", transport, len(cables))
				for _, f := range plan {
					t.Log(f)
				}
				t.Log(j.Logs(), w.Net.Counts(), w.Fabric.Counts())
			}
		})
	})
}
