package mesh_test

import (
	"fmt"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// verbs are those that enter the kernel, which may take long there.
var verbs = []string{
	"query_device", "query_port", "alloc_pd", "dealloc_pd", "reg_mr", "dereg_mr", "create_comp_channel", "destroy_comp_channel",
	"create_cq", "destroy_cq", "create_qp", "modify_qp", "query_qp", "destroy_qp",
}

// A job over RDMA, directly and through other nodes, survives faults of its cables also where each verb takes milliseconds, or
// some of them seconds: whoever waits for one that is inside a verb waits such that time goes on.
func TestSlowVerbs(t *testing.T) {
	for i, slow := range []map[string]time.Duration{
		nil, // all of them
		{"destroy_qp": 2 * time.Second},
		{"modify_qp": 300 * time.Millisecond},
		{"create_cq": time.Second, "destroy_cq": time.Second},
		{"reg_mr": time.Second, "dereg_mr": time.Second},
	} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			bus.Run(t, uint64(1+i), func(t *testing.T, b *bus.Bus) {
				w := mesh.NewWorld(t, b)
				cables := ring(w, 4, 1, true)
				for _, c := range cables {
					for _, a := range c.Adapters {
						for _, verb := range verbs {
							by := slow[verb]
							if slow == nil {
								by = 3 * time.Millisecond
							}
							a.Device.Slow(verb, by)
						}
					}
				}
				last := w.Strike(w.Plan(cables, 6, 2*time.Second, 3*time.Second))
				j := w.NewJob(map[string]string{"NCCL_MESH_LANE_WAIT": "150"}, w.Machines...)
				j.All(30, 1<<18)
				j.Run(last + 10*time.Minute)
				j.End()
			})
		})
	}
}

// A circuit that was proved once, and has failed, stands again where the machine in the middle takes two seconds to make one:
// the connection waits for its new lane as long as the proof took.
func TestSlowRelay(t *testing.T) {
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		w := mesh.NewWorld(t, b)
		for _, name := range []string{"na", "nb", "nc"} {
			w.AddMachine(name)
		}
		var cables []*mesh.Cable
		for i := range 2 {
			cables = append(cables, w.Cable(i, fast, true, w.Machines[i], w.Machines[i+1]))
		}
		w.Management()
		for _, a := range []*mesh.Adapter{cables[0].Adapters[1], cables[1].Adapters[0]} {
			a.Device.Slow("reg_mr", 330*time.Millisecond)
		}
		j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": "rdma"}, w.Machines...)
		j.Connect(0, 2, 200, 1<<16)
		j.Begun = func() {
			w.Clock.After(100*time.Millisecond, "queue pairs fail", func() {
				for _, n := range cables[0].Adapters[0].Device.QueuePairs() {
					w.Fabric.Break(n)
				}
			})
		}
		j.Run(2 * time.Minute)
		j.End()
	})
}
