package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

// mixed is the triangle with a node that has no RDMA.
const mixed = `
port a rdma0 netdev p0 addr 192.168.1.1/24
port a rdma1 netdev p1 addr 192.168.3.1/24
port b rdma0 netdev p0 addr 192.168.2.1/24
port b rdma1 netdev p1 addr 192.168.1.2/24
netif c p0 addr 192.168.3.2/24
netif c p1 addr 192.168.2.2/24
link a:rdma0 b:rdma1
link b:rdma0 c:p1
link c:p0 a:rdma1
`

// auto is the default, which start does not leave alone.
const auto = "NCCL_MESH_TRANSPORT=auto"

// lanes are those that the connections between different nodes use, as the sender says.
func (j *job) lanes() map[string][]string {
	number := regexp.MustCompile(`lane \d+ `)
	found := map[string][]string{}
	for _, r := range j.ranks {
		for _, m := range regexp.MustCompile(`NET/Mesh : (`+r.node+` -> (\S+)) conn \d+: (lane .*)`).FindAllStringSubmatch(r.output(), -1) {
			pair, to, lanes := m[1], m[2], number.ReplaceAllString(m[3], "")
			if to != r.node && !slices.Contains(found[pair], lanes) {
				found[pair] = append(found[pair], lanes)
			}
		}
	}
	return found
}

// use fails the test unless the connections between different nodes used these lanes and no others.
func (j *job) use(want map[string][]string) {
	j.f.t.Helper()
	if diff := cmp.Diff(want, j.lanes()); diff != "" {
		j.errorf("lanes (-want +got):\n%s", diff)
	}
}

// once fails the test unless a rank has said just one thing that matches.
func (j *job) once(node, pattern string) {
	j.f.t.Helper()
	if n := j.rank(node).count(pattern); n != 1 {
		j.errorf("node %s said %q %d times", node, pattern, n)
	}
}

// newFaulty makes a fabric with a fault, or without one.
func newFaulty(t *testing.T, topology, fault string) *mesh {
	t.Helper()
	f := newFabric(t, topology)
	if fault != "" {
		f.fault(strings.Fields(fault)...)
	}
	return f
}

var (
	overRDMA = map[string][]string{
		"a -> b": {"rdma0:1 -> rdma1:1 mtu 1024 gid 3"}, "b -> a": {"rdma1:1 -> rdma0:1 mtu 1024 gid 3"},
	}
	overTCP = map[string][]string{
		"a -> b": {"p0 -> p1 tcp 192.168.1.1 -> 192.168.1.2"}, "b -> a": {"p1 -> p0 tcp 192.168.1.2 -> 192.168.1.1"},
	}
)

// withC adds to the lanes between a and b those to a node without RDMA.
func withC(lanes map[string][]string) map[string][]string {
	all := map[string][]string{
		"a -> c": {"p1 -> p0 tcp 192.168.3.1 -> 192.168.3.2"}, "c -> a": {"p0 -> p1 tcp 192.168.3.2 -> 192.168.3.1"},
		"b -> c": {"p0 -> p1 tcp 192.168.2.1 -> 192.168.2.2"}, "c -> b": {"p1 -> p0 tcp 192.168.2.2 -> 192.168.2.1"},
	}
	maps.Copy(all, lanes)
	return all
}

// All that the driver does, on a mesh of RDMA and TCP.
func TestMixed(t *testing.T) {
	require.Full(t, "transport TestMixed and tests/e2e TestWithoutRDMA")
	tests := []struct {
		version string
		streams int // that node a opens
	}{{"v5", 1}, {"v8", 3}, {"v12", 1}}
	for _, tt := range tests {
		t.Run(tt.version, func(t *testing.T) {
			t.Parallel()
			j := newFabric(t, mixed).start(spec{env: []string{auto}, on: map[string][]string{"a": {fmt.Sprintf("NCCL_MESH_TCP_STREAMS=%d", tt.streams)}},
				args: []string{"--api", tt.version, "--comms", "2", "--max", "1M", "--factor", "16", "--iters", "2",
					"--work", "allreduce,allgather,alltoall,sendrecv,contract,soak", "--messages", "200"}}).ok()
			want := withC(overRDMA)
			one := want["a -> c"][0]
			want["a -> c"][0] += strings.Repeat(", "+one, tt.streams-1)
			j.use(want)
			out := j.rank("a").output()
			tables, soaks := strings.Count(out, "# Out of bounds values : 0 OK"), len(regexp.MustCompile(`# soak: .* #wrong 0\n`).FindAllString(out, -1))
			passed, failed := strings.Count(out, "PASS  "), strings.Count(out, "FAIL  ")
			if tables != 4 || soaks != 1 || passed < 30 || failed != 0 {
				j.errorf("%d tables and %d soaks without an error, want 4 and 1; %d cases of the contract passed and %d failed", tables, soaks, passed, failed)
			}
		})
	}
}

// However a node comes to be without RDMA, the others use it among themselves and TCP to that node, and every node that has an RDMA device says
// why TCP is used, once for each peer.
func TestWithoutRDMA(t *testing.T) {
	const devices = `NCCL WARN NET/Mesh : TCP is used, slower than RDMA, although there is rdma0:1 \(p0\), rdma1:1 \(p1\): `
	tests := []struct {
		name     string
		topology string
		fault    string
		c        []string // environment of node c
		want     string   // said on c
	}{
		{"no device", mixed, "", nil, `NCCL INFO NET/Mesh : TCP is used, as there is no RDMA device`},
		{"no device and no library", mixed, "", []string{"NCCL_MESH_IBVERBS=none.so"}, `NCCL INFO NET/Mesh : TCP is used, as there is no RDMA device`},
		{"no library", triangle, "", []string{"NCCL_MESH_IBVERBS=none.so"}, devices + `.*cannot load none.so.*install package libibverbs1`},
		{"a device that does not open", triangle, "verb name=open_device errno=EACCES node=c", nil, devices + `.*rdma0.*permission denied`},
		{"TCP wanted", triangle, "", []string{"NCCL_MESH_TRANSPORT=tcp"}, devices + `NCCL_MESH_TRANSPORT is tcp`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "no library" {
				require.Full(t, "transport TestTCPAlthoughRDMA")
			}
			t.Parallel()
			f := newFaulty(t, tt.topology, tt.fault)
			j := f.start(spec{env: []string{auto}, on: map[string][]string{"c": tt.c},
				args: []string{"--work", "sendrecv,allreduce", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
			j.use(withC(overRDMA))
			for _, node := range []string{"a", "b"} {
				j.once(node, `WARN.*TCP`)
				j.once(node, fmt.Sprintf(`NCCL WARN NET/Mesh : %[1]s and c talk over TCP, slower than RDMA, although %[1]s has rdma0:1 \(p0\), rdma1:1 \(p1\): (NCCL_MESH_TRANSPORT=tcp leaves out rdma0:1 \(p0\), rdma1:1 \(p1\) on c; )?c offers no RDMA port; its log says why`, node))
			}
			j.once("c", tt.want)
			if n := j.rank("c").count(`WARN`); n != strings.Count(tt.want, "WARN") {
				j.errorf("node c warned %d times", n)
			}
		})
	}
}

// Why TCP is used has nothing to do with ways over TCP that fail beside the one that works, as between two ends of different cables with
// addresses of one subnet that are tried as nobody is asked who is there.
func TestWhyTCP(t *testing.T) {
	require.Full(t, "transport/path TestWhyTCP")
	t.Parallel()
	const apart = `
netif a x addr 192.168.9.1/24
netif b x
netif b y
netif c y addr 192.168.9.2/24
link a:x b:x
link c:y b:y
`
	j := newFabric(t, mixed+apart).start(spec{env: []string{auto, "NCCL_MESH_DEBUG=debug", "NCCL_MESH_RELAY=0"}, args: []string{"--work", "sendrecv", "--max", "8", "--iters", "1"}}).ok()
	j.must("a", `no path path="x .* on a -> y .* on c: `)
	j.must("a", `a and c talk over TCP, .*: c offers no RDMA port; its log says why$`)
}

// Two nodes with RDMA whose cable does not carry it talk over TCP on that cable, and say why.
func TestCableWithoutRDMA(t *testing.T) {
	require.Full(t, "transport/path TestWhyTCP and tests/e2e TestFallsBackToTCP")
	tests := []struct {
		name     string
		topology string
		fault    string
		a, b     string // why, as each node says
	}{
		{"packets are lost", mixed, "stall port=a:rdma0", `tried rdma[01]:1 \(p[01]\) 192\.168\.1\.\d on . -> rdma[01]:1 .*`, `tried rdma[01]:1 \(p[01]\) 192\.168\.1\.\d on . -> rdma[01]:1 .*`},
		{"queue pairs cannot be connected", mixed, "verb name=modify_qp errno=ETIMEDOUT port=a:rdma0", `tried rdma.*modify_qp.*ETIMEDOUT`, `tried rdma.*modify_qp.*ETIMEDOUT`},
		{"one end has no RDMA", strings.ReplaceAll(strings.ReplaceAll(mixed, "port b rdma1 netdev p1", "netif b p1"), "b:rdma1", "b:p1"), "", `tried rdma0:1 \(p0\) fe80::\S+ on . -> rdma[01]:1 fe80::\S+ on .: .*did not answer`,
			`(no two of their RDMA ports share a cable or a subnet|tried .*did not answer)`}, // as it is heard in time that c is at the other cable of b's, or not
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, tt.topology, tt.fault)
			j := f.start(spec{env: []string{auto, "NCCL_MESH_PROOF_WAIT=300"}, args: []string{"--work", "allreduce,alltoall", "--max", "1M", "--factor", "32", "--iters", "1"}}).ok()
			j.use(withC(overTCP))
			j.once("a", `WARN.*: a and b talk over TCP, slower than RDMA, although a has rdma0:1 \(p0\), rdma1:1 \(p1\): `+tt.a)
			j.once("b", `WARN.*: b and a talk over TCP, slower than RDMA, although b has rdma0:1 \(p0\).*: `+tt.b)
		})
	}
}

// Settings under which two nodes have no lane in common: an error that names both, the setting and the remedy.
func TestTransportsDiffer(t *testing.T) {
	require.Full(t, "transport TestRDMAOnly")
	tests := []struct {
		name     string
		topology string
		on       map[string][]string
		want     string // said by somebody
	}{
		{"RDMA only, to a node without", mixed, map[string][]string{"a": {"NCCL_MESH_TRANSPORT=rdma"}},
			`connect: .*no path between (a and c|c and a): .*a offers RDMA only, as with NCCL_MESH_TRANSPORT=rdma, and c TCP only, .*Set NCCL_MESH_TRANSPORT=auto on a, or make RDMA work on c`},
		{"RDMA only, to TCP only", triangle, map[string][]string{"b": {"NCCL_MESH_TRANSPORT=rdma"}, "c": {"NCCL_MESH_TRANSPORT=tcp"}},
			`connect: .*no path between (b and c|c and b): .*b offers RDMA only, .*, and c TCP only, as with NCCL_MESH_TRANSPORT=tcp .*Set NCCL_MESH_TRANSPORT=auto on b, or`},
		{"RDMA only, on a node without", mixed, map[string][]string{"c": {"NCCL_MESH_TRANSPORT=rdma"}},
			`init: no usable port: there is no RDMA device under \S+/c/sys/class/infiniband; .*; NCCL_MESH_TRANSPORT is rdma, which rules TCP out`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := newFabric(t, tt.topology).start(spec{env: []string{auto}, on: tt.on, args: []string{"--work", "sendrecv", "--max", "64K"}})
			j.failed()
			t.Log(j.one(`NCCL WARN NET/Mesh : ` + tt.want))
		})
	}
}
