package e2e

import (
	"os"
	"strconv"
	"testing"

	"ncclmesh/tests/require"
)

// Many more ranks than processors connect to each other at once: nobody takes a turn that came late for a broken cable.
func TestCrowd(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestSlowVerbs")
	ranks := crowd
	if n, err := strconv.Atoi(os.Getenv("MESH_TEST_CROWD")); err == nil {
		ranks = n
	}
	f := newFabric(t, twins)
	var nodes []string
	for i := range ranks {
		nodes = append(nodes, f.Nodes[i%len(f.Nodes)])
	}
	j := f.start(spec{nodes: nodes, args: []string{"--work", "alltoall", "--min", "64", "--max", "64", "--iters", "1", "--warmup", "0", "--chunk", "4K", "--depth", "2", "--timeout", "300"}}).ok()
	for i, r := range j.ranks {
		if n := r.count(`not used`); n > 0 {
			j.errorf("rank %d lost %d lanes", i, n)
		}
	}
}

const crowd = 8 // 40 is the measure, with a minute of two idle processors: MESH_TEST_CROWD=40
