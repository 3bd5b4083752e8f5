package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// Two machines send each other messages without a pause over cables that differ in all that cables can differ in, each
// direction by itself, and queue pairs fail again and again. What goes over one cable is overtaken by what goes over another,
// so that the parts, grants and reports of many outages meet.
func TestSkewedCables(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			cables := ring(w, 2, 2+int(s.Uint64N(4)), true)
			for _, c := range cables {
				for end := range 2 {
					if s.Chance(0.5) {
						c.Delay(end, time.Duration(s.LogUniform(1, 5000))*time.Microsecond)
					}
					if s.Chance(0.5) {
						c.Slow(end, int64(s.LogUniform(5, 12_500))*1_000_000)
					}
					if s.Chance(0.3) {
						c.Adapters[end].Device.Late(time.Duration(s.LogUniform(1, 3000)) * time.Microsecond)
					}
				}
			}
			for _, m := range w.Machines {
				if s.Chance(0.5) {
					m.Delay(time.Duration(s.LogUniform(1, 5000)) * time.Microsecond)
				}
			}
			j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": "rdma", "NCCL_MESH_LANE_WAIT": "150"}, w.Machines...)
			j.Pauses = 0.01 * float64(s.Uint64N(3))
			most := 1 << uint(4+s.Uint64N(14))
			if s.Chance(0.6) { // as many receives as there can be: the ring of grants is full
				j.Window, most = 256, min(most, 1<<13)
			}
			if s.Chance(0.3) {
				j.Connect(0, 1, 500+int(s.Uint64N(3500)), most)
			} else {
				j.All(500+int(s.Uint64N(3500)), most)
			}
			pace := time.Duration(s.LogUniform(100, 30_000)) * time.Microsecond
			at, broken := time.Duration(0), 0
			j.Begun = func() {
				for range 1 + int(s.Uint64N(40)) {
					a := cables[s.Uint64N(uint64(len(cables)))].Adapters[s.Uint64N(2)]
					acks, which := s.Chance(0.3), s.Uint64()
					at += s.Between(0, 2*pace)
					w.Clock.After(at, "queue pair fails", func() {
						if acks {
							a.LoseAcks(1 + int(which%20))
						}
						if all := a.Device.QueuePairs(); len(all) > 0 {
							w.Fabric.Break(all[which%uint64(len(all))])
							broken++
						}
					})
				}
				at += b.Now()
			}
			j.Run(3 * time.Minute)
			if s.Chance(0.3) {
				j.Heal(at, healed)
			}
			j.End()
			if t.Failed() || testing.Verbose() {
				t.Logf("%d queue pairs failed, every %v\n%s", broken, pace, j.Logs())
				t.Log(w.Net.Counts(), w.Fabric.Counts())
			}
		})
	})
}
