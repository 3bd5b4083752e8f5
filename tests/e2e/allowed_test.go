package e2e

import (
	"strings"
	"testing"
)

// line3 is the least in which two nodes share no cable.
var line3 = cabling{pairs: "ab bc", each: 1}

// A node whose key is another than that of two nodes which only it could join does not relay for them: the error says so, and that node says
// whose queries it refused.
func TestOtherKeyOnRelay(t *testing.T) {
	t.Parallel()
	cables, env := relaying("tcp", line3)
	j := newFabric(t, cables.topology()).start(spec{
		env:  append(env, cables.alone(), "NCCL_MESH_ROUTE_WAIT=2", "NCCL_MESH_LANE_WAIT=4", "NCCL_MESH_KEY=the key of these nodes"),
		on:   map[string][]string{"b": {"NCCL_MESH_KEY=a key of other nodes"}},
		args: strings.Fields("--work alltoall --min 8 --max 64K --factor 64 --iters 2"),
	})
	j.failed()
	if j.rank("a").count(`NCCL WARN NET/Mesh : connect: peer not reachable`) == 0 { // c found the same out before, and ended the job
		j.must("c", `NCCL WARN NET/Mesh : connect: .*no path between c and a`)
	} else {
		j.must("a", `NCCL WARN NET/Mesh : connect: .*no route through other nodes: no neighbour answered on ab0\. Check .* the same NCCL_MESH_KEY or none`)
	}
	j.must("b", `NCCL WARN NET/Mesh : neighbour discovery: refused a datagram; .* interface=ab0 .* error="neighbour query: wrong MAC: that node has another NCCL_MESH_KEY, or none"`)
}
