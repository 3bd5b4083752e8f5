package e2e

import (
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// The tuner in the same library keeps NCCL's contract and chooses by the settings that all ranks have.
func TestTuner(t *testing.T) {
	ring := fabric.Ring("a", "b", "c", "d").Topology()
	tests := []struct {
		name     string
		topology string
		env      []string
		args     []string
		want     []string
	}{
		{"three nodes", triangle, nil, nil, []string{
			`NET/Mesh : tuner: chooses algorithm, protocol and channels for 3 nodes; `,
			`# 3 nodes, allreduce, 1024 bytes: ring ll, 1 channels`,
			`# 3 nodes, allreduce, 33554432 bytes: ring simple, 16 channels`,
		}},
		{"with an older network interface", triangle, nil, []string{"--api", "v8"}, []string{
			`# 3 nodes, allreduce, 1024 bytes: ring ll, 1 channels`,
		}},
		{"four nodes on a ring", ring, nil, nil, []string{
			`NET/Mesh : tuner: .* for 4 nodes, without PAT and Tree: some nodes have no cable between them`,
			`# 4 nodes, allreduce, 1024 bytes: ring ll, 1 channels`,
		}},
		{"four nodes that are said to have all cables", ring, []string{"NCCL_MESH_TOPOLOGY=full"}, nil, []string{
			`# 4 nodes, allreduce, 1024 bytes: tree ll, 1 channels`,
		}},
		{"off", triangle, []string{"NCCL_MESH_TUNER=0"}, nil, []string{
			`# 3 nodes, allreduce, 1024 bytes: \w+ \w+, 0 channels`,
			`# 3 nodes, allreduce, 33554432 bytes: \w+ \w+, 0 channels`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "four nodes on a ring" {
				require.Full(t, "ncclnet TestTuner and tests/nccl TestRails")
			}
			t.Parallel()
			j := newFabric(t, tt.topology).start(spec{env: tt.env, args: append([]string{"--work", "tuner"}, tt.args...)}).ok()
			for _, want := range append(tt.want, `PASS  tuner: all ranks have the same answers`) {
				j.must("a", want)
			}
		})
	}
}
