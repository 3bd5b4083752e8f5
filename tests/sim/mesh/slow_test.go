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
