package e2e

import (
	"strings"
	"testing"
)

// NCCL's profiler is told of every part of every message, from the first version of the interface that can take it.
func TestProfiler(t *testing.T) {
	t.Parallel()
	j := newFabric(t, triangle).start(spec{args: strings.Fields("--api v11 --profile --work allreduce,soak --messages 100 --max 1M --factor 16 --iters 2 --comms 2")}).ok()
	for _, node := range j.f.Nodes {
		j.must(node, `profiler: [1-9]\d* network events`)
	}
}
