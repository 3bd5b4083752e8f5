package e2e

import (
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// NCCL's profiler is told of every part of every message, by lanes of either kind, from the interface on that can take it; messages
// of more parts than profilers have room for are told of in part.
func TestProfiler(t *testing.T) {
	tcp := fabric.Ring("a", "b", "c").Plain().Topology()
	tests := []struct {
		name     string
		topology string
		env      []string
		api      string
		work     string
		want     string
	}{
		{"queue pairs", triangle, nil, "v12", "allreduce,soak,contract", `[1-9]\d*`},
		{"queue pairs, version 11", triangle, nil, "v11", "allreduce,soak", `[1-9]\d*`},
		{"queue pairs, version 10", triangle, nil, "v10", "allreduce,soak,contract", `0`},
		{"queue pairs, version 9", triangle, nil, "v9", "allreduce,soak", `0`},
		{"two queue pairs on a path", triangle, []string{"NCCL_IB_QPS_PER_CONNECTION=2"}, "v12", "allreduce,soak", `[1-9]\d*`},
		{"ten queue pairs on a path", triangle, []string{"NCCL_IB_QPS_PER_CONNECTION=10"}, "v12", "allreduce,soak", `[1-9]\d*`},
		{"sockets", tcp, []string{"NCCL_MESH_TRANSPORT=tcp"}, "v12", "allreduce,soak,contract", `[1-9]\d*`},
		{"two sockets on a path, checked", tcp, []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_TCP_STREAMS=2", "NCCL_MESH_TCP_CHECK=1"}, "v12", "allreduce,soak", `[1-9]\d*`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "queue pairs, version 11" {
				require.Full(t, "tests/netdriver TestProfiled")
			}
			t.Parallel()
			j := newFabric(t, tt.topology).start(spec{env: tt.env, args: []string{"--api", tt.api, "--profile",
				"--work", tt.work, "--messages", "100", "--max", "1M", "--factor", "16", "--iters", "2", "--comms", "2"}}).ok()
			for _, node := range []string{"a", "b", "c"} {
				j.must(node, `profiler: `+tt.want+` network events`)
			}
		})
	}
}
