package e2e

import (
	"strings"
	"testing"
	"time"
)

// pair is two nodes with one cable; a has a second port, whose cable leads to where no rank runs.
const pair = `
port a rdma0 netdev p0 addr 192.168.1.1/24
port a spare netdev p9 addr 192.168.9.1/24
port b rdma0 netdev p0 addr 192.168.1.2/24
port c rdma0 netdev p0 addr 192.168.9.2/24
link a:rdma0 b:rdma0
link a:spare c:rdma0
`

// twins is two nodes with two cables.
const twins = `
port a r0 netdev p0 addr 192.168.1.1/24
port a r1 netdev p1 addr 192.168.2.1/24
port b r0 netdev p0 addr 192.168.1.2/24
port b r1 netdev p1 addr 192.168.2.2/24
link a:r0 b:r0
link a:r1 b:r1
`

// soon is how long a failure may take to reach every rank on a machine that does other things too: less than any time-out after
// which a rank would have noticed by itself.
const soon = 9 * time.Second

// failed waits for the job and fails the test unless every rank, but for those that were killed, said what went wrong and ended.
func (j *job) failed(killed ...string) {
	j.f.t.Helper()
	j.wait()
	for _, r := range j.ranks {
		want := 1
		for _, node := range killed {
			if node == r.node {
				want = 128 + 9
			}
		}
		if r.status != want {
			j.fatalf("node %s: status %d, want %d", r.node, r.status, want)
		}
		if _, _, ok := r.said(`no progress for|had failed$`); ok {
			j.errorf("node %s was not told and gave up", r.node)
		}
		j.clean(r)
	}
}

// within fails the test if a rank on any of the nodes ended later than soon after a time.
func (j *job) within(since time.Time, nodes ...string) {
	j.f.t.Helper()
	for _, node := range nodes {
		if took := j.rank(node).ended.Sub(since); took > soon {
			j.errorf("node %s ended %v later", node, took)
		} else {
			j.f.t.Logf("node %s ended %v later", node, took)
		}
	}
}

// What a verb refuses while connections are set up is an error on that node that says what and why, and one of the peer's on others.
func TestVerbRefused(t *testing.T) {
	tests := []struct {
		name  string
		fault string
		node  string // that says
		want  string
	}{
		{"memory of the user", "reg bytes=2M node=a", "a", `regMr: a -> a conn \d+: register 8\d{6} bytes of host memory.*ENOMEM.*RLIMIT_MEMLOCK\) is .*ulimit -l`},
		{"queue pair", "verb name=create_qp errno=ENOMEM node=b", "b", `create_qp.*cannot allocate memory`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, pair)
			f.fault(strings.Fields(tt.fault)...)
			j := f.start(spec{nodes: []string{"a", "b"}, args: []string{"--work", "sendrecv", "--max", "64K"}})
			j.failed()
			j.must(tt.node, `NCCL WARN NET/Mesh : .*`+tt.want)
		})
	}
}

// A work request is refused as it would be on any lane: the job ends on both nodes, with an error that names both ends.
func TestCompletionError(t *testing.T) {
	t.Parallel()
	f := newFabric(t, pair)
	j := f.start(spec{nodes: []string{"a", "b"}, env: []string{"NCCL_MESH_LANE_WAIT=2"}, args: f.endless("--work soak --max 64K")})
	j.moves()
	at := time.Now()
	f.fault("wr", "status=REM_ACCESS_ERR", "node=a")
	j.failed()
	j.within(at, "a", "b")
	t.Log(j.one(`NCCL WARN NET/Mesh : .*(a|b) -> (a|b) conn \d+: .*(rdma0|spare):1 -> (rdma0|spare):1.*remote access error`))
}

// Where RDMA does not get through and TCP does, the job goes on over TCP and says so.
func TestFallsBackToTCP(t *testing.T) {
	t.Parallel()
	f := newFabric(t, pair)
	f.fault("stall")
	j := f.start(spec{nodes: []string{"a", "b"}, env: []string{"NCCL_MESH_TRANSPORT=auto", "NCCL_MESH_PROOF_WAIT=300"},
		args: []string{"--work", "allreduce,sendrecv", "--max", "1M", "--factor", "32", "--iters", "1"}}).ok()
	j.must("a", `NCCL WARN NET/Mesh : .*TCP.*rdma0:1`)
	j.must("a", `a -> b conn \d+: lane 0 p0 -> p0 .*`)
}
