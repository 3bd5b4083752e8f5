package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
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
		{"memory of a connection", "verb name=reg_mr errno=ENOMEM node=b", "b", `\d{6} bytes.*RLIMIT_MEMLOCK\) is .*ulimit -l`},
		{"completion queue", "verb name=create_cq errno=ENOMEM node=a", "a", `create_cq.*cannot allocate memory`},
		{"queue pair", "verb name=create_qp errno=ENOMEM node=b", "b", `create_qp.*cannot allocate memory`},
		{"queue pair's state", "verb name=modify_qp errno=EINVAL node=b", "b", `modify_qp.*invalid argument`},
		{"posting", "verb name=post_send errno=ENOMEM node=a", "a", `post_send.*cannot allocate memory`},
		{"polling", "verb name=poll_cq errno=EIO node=a", "a", `poll_cq`},
		{"protection domain", "verb name=alloc_pd errno=ENOMEM node=b", "b", `alloc_pd.*cannot allocate memory`},
		{"device", "verb name=open_device errno=EACCES node=b", "b", `rdma0.*permission denied`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "memory of the user" && tt.name != "queue pair" {
				require.Full(t, "ibv TestVerbsFail and the same test of two other verbs")
			}
			t.Parallel()
			f := newFabric(t, pair)
			f.fault(strings.Fields(tt.fault)...)
			j := f.start(spec{nodes: []string{"a", "b"}, args: []string{"--work", "sendrecv", "--max", "64K"}})
			j.failed()
			j.must(tt.node, `NCCL WARN NET/Mesh : .*`+tt.want)
		})
	}
}

// Cables that lead elsewhere than their addresses say: the error names both nodes, both ends, and what the device said.
func TestWrongCabling(t *testing.T) {
	require.Full(t, "transport/path TestWhyNoPath")
	f := newFabric(t, `
port a r0 netdev p0 addr 192.168.1.1/24
port b r0 netdev p0 addr 192.168.1.2/24
port c r0 netdev p0 addr 10.0.0.1/24
port c r1 netdev p1 addr 10.0.1.1/24
link a:r0 c:r0
link b:r0 c:r1
resolve 100ms
`)
	j := f.start(spec{nodes: []string{"a", "b"}, env: []string{"NCCL_MESH_LANE_WAIT=2"}, args: []string{"--work", "sendrecv", "--max", "64K"}})
	j.failed()
	j.one(`NCCL WARN NET/Mesh : connect: .*no path between (a|b) and (a|b); .*tried r0:1 .*192\.168\.1\.\d on (a|b) -> r0:1 192\.168\.1\.\d on (a|b): .*modify_qp.*ETIMEDOUT.*INIT to RTR`)
}

// One refusal that need not end anything does not.
func TestVerbRefusedOnce(t *testing.T) {
	require.Full(t, "tests/e2e TestVerbRefused, where no other port is left")
	tests := []struct {
		name  string
		fault string
		want  string // said on a
	}{
		{"a lane that cannot be connected", "verb name=modify_qp errno=ETIMEDOUT port=a:r1", `a -> b conn \d+: lane 0 r0:1 -> r0:1 mtu 1024 gid 3$`},
		{"a device that does not open", "verb name=open_device errno=EIO times=1 node=a", `port is not used.*input/output error`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, twins)
			f.fault(strings.Fields(tt.fault)...)
			j := f.start(spec{args: []string{"--work", "sendrecv", "--max", "64K"}}).ok()
			j.must("a", tt.want)
		})
	}
}

// during starts a soak between two nodes, lets something happen once it moves data, and returns it with the time.
func during(t *testing.T, f *mesh, what func()) (*job, time.Time) {
	t.Helper()
	j := f.start(spec{nodes: []string{"a", "b"}, env: []string{"NCCL_MESH_LANE_WAIT=2"}, args: []string{"--work", "soak", "--max", "64K", "--duration", "3"}})
	for _, node := range []string{"a", "b"} {
		for _, pair := range []string{"a -> b", "b -> a"} {
			j.await(node, pair+` conn \d+: lane 0`)
		}
	}
	time.Sleep(50 * time.Millisecond)
	at := time.Now()
	what()
	return j, at
}

// The only cable fails in mid-transfer for good, or what would be refused on any lane: the job ends on both nodes, with an error
// that names both ends.
func TestCompletionErrors(t *testing.T) {
	ends := `(a|b) -> (a|b) conn \d+: .*(rdma0|spare):1 -> (rdma0|spare):1`
	tests := []struct {
		name  string
		fault string
		want  string // said on a or b
	}{
		{"remote access", "wr status=REM_ACCESS_ERR node=a", `remote access error`},
		{"remote operation", "wr status=REM_OP_ERR node=a times=1000000", `remote operation error`},
		{"local protection", "wr status=LOC_PROT_ERR node=b", `local protection error`},
		{"transport retries", "wr status=RETRY_EXC_ERR node=a times=1000000", `transport retry counter exceeded`},
		{"flushed", "wr status=WR_FLUSH_ERR node=b times=1000000", `[Ff]lush`},
		{"unplugged", "unplug a:rdma0", `transport retry counter exceeded.*check both ports and the cable`},
		{"port off", "down b:rdma0", `transport retry counter exceeded.*check both ports and the cable`},
		{"stalled", "stall", `transport retry counter exceeded`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "remote access" {
				require.Full(t, "transport/conn TestAllLanesFail")
			}
			t.Parallel()
			f := newFabric(t, pair)
			j, at := during(t, f, func() { f.fault(strings.Fields(tt.fault)...) })
			j.failed()
			j.within(at, "a", "b")
			t.Log(j.one(`NCCL WARN NET/Mesh : .*` + ends + `.*` + tt.want))
		})
	}
}

// A lane that the device declares broken, or that breaks once, is replaced, be it the only one: the job goes on.
func TestLaneReplaced(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail")
	queuePair := func(f *mesh) {
		numbers, devices := f.queuePairs("a")
		for i, n := range numbers {
			if devices[i] == "rdma0" {
				f.fault("qp-error", fmt.Sprint(n))
				return
			}
		}
	}
	word := func(fault string) func(*mesh) {
		return func(f *mesh) { f.fault(strings.Fields(fault)...) }
	}
	tests := []struct {
		name  string
		fault func(*mesh)
	}{
		{"queue pair fatal", queuePair},
		{"device fatal", word("event DEVICE_FATAL a:rdma0")},
		{"transport retries", word("wr status=RETRY_EXC_ERR port=a:rdma0")},
		{"a moment without a cable", func(f *mesh) {
			f.fault("unplug", "a:rdma0")
			f.fault("plug", "a:rdma0")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, pair)
			j, _ := during(t, f, func() { tt.fault(f) })
			j.ok()
		})
	}
}

// What passes is waited for; what concerns nobody is a line in the log.
func TestHarmless(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail")
	tests := []struct {
		name   string
		faults []string
		want   string // said on a
	}{
		{"a port event without consequences", []string{"event PORT_ERR a:spare"}, `NCCL WARN NET/Mesh : .*port went down; check the cable.*spare:1`},
		{"addresses change", []string{"event GID_CHANGE a:rdma0"}, ``},
		{"the port comes up", []string{"event PORT_ACTIVE a:rdma0"}, ``},
		{"completions show late", []string{"slow time=1ms"}, ``},
		{"packets are lost for a moment", []string{"stall", "clear"}, ``},
		{"acknowledgements are lost", []string{"ack times=5"}, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, pair)
			j, _ := during(t, f, func() {
				for _, words := range tt.faults {
					f.fault(strings.Fields(words)...)
				}
			})
			j.ok()
			j.must("a", tt.want)
		})
	}
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
