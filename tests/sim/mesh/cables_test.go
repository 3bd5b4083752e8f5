package mesh_test

import (
	"fmt"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// fast is 100 Gb/s.
var fast = mesh.Speed{Rate: 12_500_000_000, Latency: 2 * time.Microsecond, Jitter: time.Microsecond}

// ring makes n machines in a ring, with so many cables between neighbours, and a management network.
func ring(w *mesh.World, n, each int, rdma bool) (cables []*mesh.Cable) {
	for i := range n {
		w.AddMachine(fmt.Sprintf("n%c", 'a'+i))
	}
	pairs := n
	if n == 2 {
		pairs = 1
	}
	for i := range pairs {
		for range each {
			cables = append(cables, w.Cable(len(cables), fast, rdma, w.Machines[i], w.Machines[(i+1)%n]))
		}
	}
	w.Management()
	return cables
}

// Two runs of a seed are one history, also while cables fail and processes are stopped.
func TestOneHistory(t *testing.T) {
	for name, rdma := range map[string]bool{"TCP": false, "RDMA": true} {
		t.Run(name, func(t *testing.T) {
			bus.Twice(t, firstSeed(), func(t *testing.T, b *bus.Bus) {
				w := mesh.NewWorld(t, b)
				cables := ring(w, 3, 2, rdma)
				w.Strike(w.Plan(cables, 5, time.Second, time.Second))
				j := w.NewJob(nil, w.Machines...)
				j.Ring(30, 1<<17)
				w.Clock.After(300*time.Millisecond, "stop", func() { j.Ranks()[0].Stop(700 * time.Millisecond) })
				j.Run(5 * time.Minute)
				j.End()
			})
		})
	}
}

// A job over TCP survives whatever happens to its cables.
func TestCablesFail(t *testing.T) { cablesFail(t, "tcp") }

// A job over RDMA does, with TCP as the last resort or without.
func TestRDMACablesFail(t *testing.T) { cablesFail(t, "auto", "rdma") }

// healed is how long after the last fault all ways must have their lanes again. A path that flaps is left alone for 10 s at
// most, and ways are looked for every 10 s at least.
const healed = time.Minute

// A job without faults loses no lane, and warns of nothing.
func TestNoFault(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			transport := []string{"tcp", "auto", "rdma"}[s.Uint64N(3)]
			ring(w, 2+int(s.Uint64N(4)), 1+int(s.Uint64N(3)), transport != "tcp")
			j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": transport}, w.Machines...)
			messages, most := 1+int(s.Uint64N(50)), 1<<uint(s.Uint64N(21))
			if s.Chance(0.5) {
				j.Ring(messages, most)
			} else {
				j.All(messages, most)
			}
			j.Run(time.Minute)
			j.End()
			for _, r := range j.Ranks() {
				for _, text := range r.Troubles() {
					t.Errorf("%s: %s", r.Name(), text)
				}
			}
			if t.Failed() || testing.Verbose() {
				t.Logf("%s over %d machines\n%s", transport, len(w.Machines), j.Logs())
			}
		})
	})
}

// cablesFail draws the machines, the cables, what talks to whom, and the faults. No outage lasts as long as lanes are waited
// for, so that no rank may fail.
func cablesFail(t *testing.T, transports ...string) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			transport := transports[s.Uint64N(uint64(len(transports)))]
			cables := ring(w, 2+int(s.Uint64N(4)), 1+int(s.Uint64N(3)), transport != "tcp")
			plan := w.Plan(cables, 1+int(s.Uint64N(12)), 1500*time.Millisecond, 8*time.Second)
			t.Cleanup(func() {
				if t.Failed() || testing.Verbose() {
					t.Logf("%s over %d machines with %d cables", transport, len(w.Machines), len(cables))
					for _, f := range plan {
						t.Log(f)
					}
				}
			})
			last := w.Strike(plan)
			j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": transport, "NCCL_MESH_LANE_WAIT": "150"}, w.Machines...)
			messages, most := 10+int(s.Uint64N(200)), 1<<uint(s.Uint64N(23))
			if s.Chance(0.5) {
				j.Ring(messages, most)
			} else {
				j.All(messages/4+1, most)
			}
			j.Run(last + 3*time.Minute)
			if s.Chance(0.5) { // else some of what is still under way meets the end
				j.Heal(last, healed)
			}
			j.End()
			if testing.Verbose() {
				t.Log(j.Logs(), w.Net.Counts(), w.Fabric.Counts())
			}
		})
	})
}
