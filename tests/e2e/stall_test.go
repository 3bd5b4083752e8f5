package e2e

import (
	"fmt"
	"testing"

	"ncclmesh/tests/require"
)

// A lane over which nothing comes through is left while its queue pair has not given up by far, and comes back when it works again; not a
// byte is wrong.
func TestStalledLane(t *testing.T) {
	require.Full(t, "transport/message TestStalledLane and tests/sim/mesh TestRDMACablesFail")
	const patient = "NCCL_IB_TIMEOUT=20" // for more than half a minute
	tests := []struct {
		over   over
		faults []string
		cable  string
		env    []string
	}{
		{over{cabling: two}, []string{"stall port=b:rab1"}, "rab1", []string{patient}},
		{over{cabling: four}, []string{"ack port=a:rab2"}, "rab2", []string{patient}},
		{over{cabling: fourTCP}, []string{"ip a neigh replace 192.168.3.2 dev ab2 lladdr 02:00:00:00:00:99 nud permanent"}, "ab2", []string{auto, "NCCL_MESH_LANE_WAIT=60"}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s, %v", tt.faults[0], tt.over), func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, tt.over.topology())
			j := f.start(spec{env: tt.env, args: f.endless("--work soak --max 1M --comms 2")})
			j.moves()
			j.suffer(tt.faults...)
			j.await("a", tt.cable+`\S*: (b says: .*)?(nothing was delivered|no grant arrived over it) for `)
			if tt.over.plain != "" {
				j.suffer("ip a neigh del 192.168.3.2 dev ab2")
			} else {
				f.fault("clear")
			}
			j.times(1, "a", tt.cable+`\S* has come back`)
			j.suffer("moves", "moves")
			j.enough().ok()
			if j.lost() == 0 {
				j.errorf("no lane was lost")
			}
		})
	}
}
