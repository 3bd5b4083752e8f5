package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// Every address plan and every cabling works with no setting, and uses the lanes
// that it should, no more and no fewer.
func TestPlans(t *testing.T) {
	tests := []struct {
		name     string
		topology string
		lanes    []string // of the connection from a to b
	}{
		{"a /30 per function", `
			port a r0 netdev p0 addr 10.0.0.1/30
			port a r1 netdev p1 addr 10.0.0.5/30
			port b r0 netdev p0 addr 10.0.0.2/30
			port b r1 netdev p1 addr 10.0.0.6/30
			link a:r0 b:r0
			link a:r1 b:r1`,
			[]string{"r0:1 -> r0:1", "r1:1 -> r1:1"}},
		{"a /31 per cable", `
			port a r0 netdev p0 addr 10.0.0.0/31
			port b r0 netdev p0 addr 10.0.0.1/31
			link a:r0 b:r0`,
			[]string{"r0:1 -> r0:1"}},
		{"both functions of a cable in one /24", `
			port a r0 netdev p0 addr 192.168.1.1/24 cage c0 image A
			port a r1 netdev p1 addr 192.168.1.2/24 cage c0 image A
			port b r0 netdev p0 addr 192.168.1.3/24 cage c0 image B
			port b r1 netdev p1 addr 192.168.1.4/24 cage c0 image B
			link a:r0 b:r0
			link a:r1 b:r1`,
			[]string{"r0:1 -> r0:1", "r1:1 -> r1:1"}},
		{"both functions in one /24, twins crossed", `
			port a r0 netdev p0 addr 192.168.1.1/24
			port a r1 netdev p1 addr 192.168.1.2/24
			port b r0 netdev p0 addr 192.168.1.3/24
			port b r1 netdev p1 addr 192.168.1.4/24
			link a:r0 b:r1
			link a:r1 b:r0`,
			[]string{"r0:1 -> r1:1", "r1:1 -> r0:1"}},
		{"169.254/16 on every port of three nodes", `
			port a r0 netdev p0 addr 169.254.10.1/16
			port a r1 netdev p1 addr 169.254.10.2/16
			port b r0 netdev p0 addr 169.254.20.1/16
			port b r1 netdev p1 addr 169.254.20.2/16
			port c r0 netdev p0 addr 169.254.30.1/16
			port c r1 netdev p1 addr 169.254.30.2/16
			link a:r0 b:r1
			link b:r0 c:r0
			link c:r1 a:r1`,
			[]string{"r0:1 -> r1:1"}},
		{"one half without an address", `
			port a r0 netdev p0 addr 192.168.1.1/24
			port a r1 netdev p1
			port b r0 netdev p0 addr 192.168.1.2/24
			port b r1 netdev p1
			link a:r0 b:r0
			link a:r1 b:r1`,
			[]string{"r0:1 -> r0:1", "r1:1 -> r1:1"}},
		{"IPv6 only", `
			port a r0 netdev p0 addr fd00:1::1/64
			port b r0 netdev p0 addr fd00:1::2/64
			link a:r0 b:r0`,
			[]string{"r0:1 -> r0:1"}},
		{"no configured address at all", `
			port a r0 netdev p0
			port a r1 netdev p1
			port b r0 netdev p0
			port b r1 netdev p1
			link a:r0 b:r0
			link a:r1 b:r1`,
			[]string{"r0:1 -> r0:1", "r1:1 -> r1:1"}},
		{"addresses in different subnets", `
			port a r0 netdev p0 addr 192.168.1.1/24
			port b r0 netdev p0 addr 192.168.2.2/24
			link a:r0 b:r0`,
			[]string{"r0:1 -> r0:1"}},
		{"p0 to p1, other names and order at the other end", `
			port a r0 netdev p0 addr 192.168.1.1/24
			port a r1 netdev p1 addr 192.168.2.1/24
			port b x0 netdev q0 addr 192.168.2.2/24
			port b x1 netdev q1 addr 192.168.1.2/24
			link a:r0 b:x1
			link a:r1 b:x0`,
			[]string{"r0:1 -> x1:1", "r1:1 -> x0:1"}},
		{"two cables of two halves", `
			port a f0 netdev p0 addr 192.168.1.1/24 cage c0 image A
			port a f1 netdev p1 addr 192.168.2.1/24 cage c0 image A
			port a g0 netdev p2 addr 192.168.3.1/24 cage c1 image A
			port a g1 netdev p3 addr 192.168.4.1/24 cage c1 image A
			port b f0 netdev p0 addr 192.168.1.2/24 cage c0 image B
			port b f1 netdev p1 addr 192.168.2.2/24 cage c0 image B
			port b g0 netdev p2 addr 192.168.3.2/24 cage c1 image B
			port b g1 netdev p3 addr 192.168.4.2/24 cage c1 image B
			link a:f0 b:f0
			link a:f1 b:f1
			link a:g0 b:g0
			link a:g1 b:g1`,
			[]string{"f0:1 -> f0:1", "f1:1 -> f1:1", "g0:1 -> g0:1", "g1:1 -> g1:1"}},
		{"InfiniBand and Ethernet beside each other", `
			port a r0 layer infiniband
			port a r1 layer infiniband
			port a r2 netdev p2 addr 192.168.1.1/24
			port b r0 layer infiniband
			port b r1 layer infiniband
			port b r2 netdev p2 addr 192.168.1.2/24
			link a:r0 b:r1
			link a:r1 b:r0
			link a:r2 b:r2`,
			[]string{"r0:1 -> r1:1", "r1:1 -> r0:1", "r2:1 -> r2:1"}},
		{"GID tables that differ, RoCE v1 before v2", `
			port a r0 netdev p0 addr 10.1.1.1/24 addr 10.9.9.9/24 addr 192.168.1.1/24 gids mlx5
			port b r0 netdev p0 addr 192.168.1.2/24 gids rxe
			link a:r0 b:r0`,
			[]string{"r0:1 -> r0:1"}},
		{"a management network in the subnet of a mesh port", `
			mgmt 192.168.1.0/24
			port a r0 netdev p0 addr 192.168.1.101/24
			port b r0 netdev p0 addr 192.168.1.102/24
			link a:r0 b:r0`,
			[]string{"r0:1 -> r0:1"}},
	}
	lane := regexp.MustCompile(`lane \d+ (\S+ -> \S+) `)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "no configured address at all" && tt.name != "GID tables that differ, RoCE v1 before v2" {
				require.Full(t, "transport/topology TestCandidates and tests/lab TestTriangle")
			}
			t.Parallel()
			f := newFabric(t, tt.topology)
			j := f.start(spec{args: []string{"--work", "sendrecv,allreduce", "--max", "1M", "--factor", "64", "--iters", "1"}}).ok()
			line := j.await("a", `NET/Mesh : a -> b conn \d+: lane`)
			var got []string
			for _, m := range lane.FindAllStringSubmatch(line+" ", -1) {
				got = append(got, m[1])
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.lanes) {
				j.errorf("lanes %q, want %q", got, tt.lanes)
			}
		})
	}
}

// A cable whose ends differ in MTU is told of, by what its ports are called, and no pair of ports without a cable is.
func TestMTU(t *testing.T) {
	tests := []struct {
		name     string
		topology string
		want     []string
	}{
		{"of the interfaces", `
			port a r0 netdev p0 addr 192.168.1.1/24 mtu 4200
			port b r0 netdev p0 addr 192.168.1.2/24 mtu 1500
			link a:r0 b:r0`,
			[]string{"r0:1 (p0) on a has 4096, r0:1 (p0) on b has 1024; using 1024"}},
		{"of InfiniBand ports", `
			port a r0 layer infiniband lid 11 mtu 2048
			port a r1 layer infiniband lid 12 mtu 4096
			port b r0 layer infiniband lid 21 mtu 2048
			port b r1 layer infiniband lid 22 mtu 1024
			link a:r0 b:r0
			link a:r1 b:r1`,
			[]string{"r1:1 on a has 4096, r1:1 on b has 1024; using 1024"}},
	}
	differs := regexp.MustCompile(`MTU differs between the ends of a cable: (.*)\. Set`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "of the interfaces" {
				require.Full(t, "the same test of interfaces and tests/e2e TestFabrics over InfiniBand")
			}
			t.Parallel()
			j := newFabric(t, tt.topology).start(spec{args: []string{"--work", "sendrecv", "--max", "1M", "--factor", "64", "--iters", "1"}}).ok()
			var got []string
			for _, m := range differs.FindAllStringSubmatch(j.rank("a").output(), -1) {
				got = append(got, m[1])
			}
			if !slices.Equal(got, tt.want) {
				j.errorf("a says of MTUs %q, want %q", got, tt.want)
			}
		})
	}
}

// One of two halves down: the other carries everything.
func TestHalfDown(t *testing.T) {
	require.Full(t, "tests/e2e TestPortComesUp")
	t.Parallel()
	f := newFabric(t, `
		port a r0 netdev p0 addr 192.168.1.1/24
		port a r1 netdev p1 addr 192.168.2.1/24
		port b r0 netdev p0 addr 192.168.1.2/24
		port b r1 netdev p1 addr 192.168.2.2/24
		link a:r0 b:r0
		link a:r1 b:r1`)
	f.fault("unplug", "a:r1")
	j := f.start(spec{args: []string{"--work", "sendrecv", "--max", "1M", "--factor", "64", "--iters", "1"}}).ok()
	if line := j.await("a", `NET/Mesh : a -> b conn \d+: lane`); strings.Contains(line, "r1:1") {
		j.errorf("a lane over the cable that is out: %s", line)
	}
}

// noWay is two nodes whose cables end elsewhere.
const noWay = `
	port a r0 netdev p0 addr 192.168.1.1/24
	port b r0 netdev p0 addr 192.168.1.2/24
	port c r0 netdev p0 addr 192.168.9.1/24
	port d r0 netdev p0 addr 192.168.9.2/24
	link a:r0 c:r0
	link b:r0 d:r0`

// Two nodes without a way between them learn so, with all that was tried.
func TestNoPath(t *testing.T) {
	require.Full(t, "transport/path TestWhyNoPath")
	t.Parallel()
	f := newFabric(t, noWay)
	j := f.start(spec{nodes: []string{"a", "b"}, env: []string{"NCCL_MESH_LANE_WAIT=2"}, args: []string{"--work", "sendrecv", "--max", "8", "--iters", "1"}}).wait()
	for _, r := range j.ranks {
		if r.status == 0 {
			j.errorf("rank on %s ended well", r.node)
		}
	}
	text := j.logs()
	for _, want := range []string{`no path between [ab] and [ab]`, `192\.168\.1\.[12] on [ab] -> r0:1 192\.168\.1\.[12] on [ab]: `, `ncclRemoteError`, `Check the cables between the two nodes`} {
		if !regexp.MustCompile(want).MatchString(text) {
			j.errorf("nobody says %q", want)
		}
	}
}

// Where RDMA finds no way and TCP does, TCP carries the job and that is said.
func TestNoPathButTCP(t *testing.T) {
	require.Full(t, "tests/e2e TestFallsBackToTCP")
	t.Parallel()
	f := newFabric(t, noWay)
	j := f.start(spec{nodes: []string{"a", "b"}, env: []string{"NCCL_MESH_TRANSPORT=auto"}, args: []string{"--work", "sendrecv", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
	j.must("a", `WARN.*a and b talk over TCP, slower than RDMA, although a has r0:1`)
	j.must("a", `a -> b conn \d+: lane 0 mgmt0 -> mgmt0 tcp`)
}
