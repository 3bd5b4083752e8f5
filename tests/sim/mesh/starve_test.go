package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
	"ncclmesh/transport/stats"
)

// One rank of a ring of RDMA machines is stopped for 0.2 s while connections are set up, on machines so busy that no process
// runs for long at a time. No rank fails, the job is over in time, and in the end nothing goes over TCP.
func TestStoppedInSetUp(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			ring(w, 4, 1+int(s.Uint64N(2)), true)
			j := w.NewJob(nil, w.Machines...)
			if s.Chance(0.5) {
				j.Ring(20, 1<<18)
			} else {
				j.All(10, 1<<18)
			}
			longest := s.LogUniform(1, 300) // ms that a process waits for a processor
			for _, r := range j.Ranks() {
				for at := s.Between(0, 50*time.Millisecond); at < 3*time.Second; {
					d := time.Duration(s.LogUniform(100, 1000*longest)) * time.Microsecond
					w.Clock.After(at, "starve "+r.Name(), func() { r.Stop(d) })
					at += d + time.Duration(s.LogUniform(1000, 100_000))*time.Microsecond
				}
			}
			stopped := j.Ranks()[s.Uint64N(4)]
			at := s.Between(0, 500*time.Millisecond)
			w.Clock.After(at, "stop "+stopped.Name(), func() { stopped.Stop(200 * time.Millisecond) })
			j.Run(2 * time.Minute)
			j.Heal(b.Now(), healed)
			for _, r := range j.Ranks() {
				shown := r.Shown()
				for _, l := range shown.Lanes {
					if way := &shown.Ways[l.Way]; l.Up && way.Kind == stats.TCP {
						t.Errorf("%s has a lane to %s over TCP", r.Name(), way.Peer)
					}
				}
			}
			j.End()
			if t.Failed() || testing.Verbose() {
				t.Logf("up to %d ms without a processor; %s is stopped %v after the start\n%s", longest, stopped.Name(), at, j.Logs())
			}
		})
	})
}
