package mesh_test

import (
	"fmt"
	"testing"
	"time"

	"ncclmesh/tests/sim/mesh"
)

// A job over RDMA, directly and through other nodes, survives faults of its cables also where each verb takes milliseconds, or
// some of them seconds: whoever waits for one that is inside a verb waits such that time goes on.
func TestSlowVerbs(t *testing.T) {
	drawsNone(t)
	for i, slow := range []map[string]time.Duration{
		nil, // all of them
		{"destroy_qp": 2 * time.Second},
		{"modify_qp": 300 * time.Millisecond},
		{"create_cq": time.Second, "destroy_cq": time.Second},
		{"reg_mr": time.Second, "dereg_mr": time.Second},
	} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			s, _ := mesh.NewScenario(uint64(1 + i))
			s.Ring(4, 1, true)
			for _, c := range s.Cables {
				for _, m := range []string{c.From, c.To} {
					for _, verb := range mesh.Verbs {
						by := slow[verb]
						if slow == nil {
							by = 3 * time.Millisecond
						}
						if by > 0 {
							s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: m, Kind: "verb " + verb + " slow", Amount: int64(by)})
						}
					}
				}
			}
			s.Faults = append(s.Faults, s.Plan(6, 2*time.Second, 3*time.Second)...)
			s.Settings["NCCL_MESH_LANE_WAIT"] = "150"
			s.ConnectAll(mesh.Traffic(30, 1<<18))
			s.Expect.Within = 10 * time.Minute
			mesh.Play(t, s)
		})
	}
}

// A circuit that was proved once, and has failed, stands again where the machine in the middle takes two seconds to make one:
// the connection waits for its new lane as long as the proof took.
func TestSlowRelay(t *testing.T) {
	drawsNone(t)
	s, _ := mesh.NewScenario(1)
	s.Row(3, 1, true)
	s.Settings["NCCL_MESH_TRANSPORT"] = "rdma"
	for _, c := range s.Cables {
		s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: "nb", Kind: "registration slow", Amount: int64(330 * time.Millisecond)})
	}
	s.Faults = append(s.Faults, mesh.Fault{At: 100 * time.Millisecond, Traffic: true, Cable: 0, Machine: "na", Kind: "queue pairs fail"})
	s.Connect(0, 2, mesh.Traffic(200, 1<<16))
	mesh.Play(t, s)
}
