package mesh_test

import (
	"fmt"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// A process is stopped for a while, as by a debugger, also when it relays, and also while cables fail: no rank fails, and
// all lanes come back.
func TestProcessIsStopped(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			transport := []string{"tcp", "auto", "rdma"}[s.Uint64N(3)]
			cables := ring(w, 2+int(s.Uint64N(4)), 1+int(s.Uint64N(2)), transport != "tcp")
			var last time.Duration
			var faults []*mesh.Fault
			if s.Chance(0.5) {
				faults = w.Plan(cables, 1+int(s.Uint64N(4)), 1500*time.Millisecond, 3*time.Second)
				last = w.Strike(faults)
			}
			j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": transport, "NCCL_MESH_LANE_WAIT": "150"}, w.Machines...)
			messages, most := 10+int(s.Uint64N(200)), 1<<uint(s.Uint64N(22))
			if s.Chance(0.5) {
				j.Ring(messages, most)
			} else {
				j.All(messages/4+1, most)
			}
			var stops []string
			for range 1 + int(s.Uint64N(3)) {
				r := j.Ranks()[s.Uint64N(uint64(len(j.Ranks())))]
				at, d := s.Between(0, 1500*time.Millisecond), time.Duration(s.LogUniform(100, 60_000))*time.Millisecond
				stops = append(stops, fmt.Sprintf("%v to %v: %s is stopped", b.Now()+at, b.Now()+at+d, r.Name()))
				w.Clock.After(at, "stop "+r.Name(), func() { r.Stop(d) })
				last = max(last, b.Now()+at+d)
			}
			t.Cleanup(func() {
				if t.Failed() || testing.Verbose() {
					t.Logf("%s over %d machines with %d cables", transport, len(w.Machines), len(cables))
					for _, f := range faults {
						t.Log(f)
					}
					for _, text := range stops {
						t.Log(text)
					}
				}
			})
			j.Run(last + 3*time.Minute)
			j.Heal(last, healed)
			j.End()
			if testing.Verbose() {
				t.Log(j.Logs(), w.Net.Counts(), w.Fabric.Counts())
			}
		})
	})
}

// While a process is stopped it does nothing at all, and its timers that are due then fire when it goes on.
func TestStoppedProcessRests(t *testing.T) {
	for _, transport := range []string{"tcp", "rdma"} {
		t.Run(transport, func(t *testing.T) {
			bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
				w := mesh.NewWorld(t, b)
				cables := ring(w, 3, 1, transport != "tcp")
				j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": transport, "NCCL_MESH_LANE_WAIT": "150"}, w.Machines...)
				j.All(200, 1<<20)
				r := j.Ranks()[0]
				var before, after string
				w.Clock.After(300*time.Millisecond, "stop", func() { r.Stop(20 * time.Second); before = r.State() })
				w.Clock.After(2*time.Second, "cut", func() { cables[0].Cut(true) })
				w.Clock.After(5*time.Second, "repair", func() { cables[0].Cut(false) })
				w.Clock.After(20*time.Second, "look", func() { after = r.State() })
				j.Run(5 * time.Minute)
				j.End()
				if before != after || before == "" {
					t.Errorf("it was stopped with\n%s\nand at the end of that it had\n%s", before, after)
				}
			})
		})
	}
}
