package mesh_test

import (
	"fmt"
	"os"
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

// Two runs of a seed are one history. FULL=1 has cables fail meanwhile, which takes many runs on a machine that is busy: after a
// fault, what is tried next hangs on which of two goroutines of an instant came first.
func TestOneHistory(t *testing.T) {
	for name, rdma := range map[string]bool{"TCP": false, "RDMA": true} {
		t.Run(name, func(t *testing.T) {
			bus.Twice(t, firstSeed(), func(t *testing.T, b *bus.Bus) {
				w := mesh.NewWorld(t, b)
				cables := ring(w, 3, 2, rdma)
				if os.Getenv("FULL") != "" {
					w.Strike(w.Plan(cables, 5, time.Second, time.Second))
				}
				j := w.NewJob(nil, w.Machines...)
				j.Ring(50, 1<<20)
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
			j.End()
			if testing.Verbose() {
				t.Log(j.Logs(), w.Net.Counts(), w.Fabric.Counts())
			}
		})
	})
}
