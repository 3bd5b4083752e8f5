package e2e

import (
	"testing"

	"ncclmesh/tests/fabric"
)

// The tuner in the same library keeps NCCL's contract and chooses by the cables that there are.
func TestTuner(t *testing.T) {
	t.Parallel()
	j := newFabric(t, fabric.Ring("a", "b", "c", "d").Topology()).start(spec{args: []string{"--work", "tuner"}}).ok()
	for _, want := range []string{
		`NET/Mesh : tuner: .* for 4 nodes, without PAT and Tree: some nodes have no cable between them`,
		`# 4 nodes, allreduce, 1024 bytes: ring ll, 1 channels`,
		`PASS  tuner: all ranks have the same answers`,
	} {
		j.must("a", want)
	}
}
