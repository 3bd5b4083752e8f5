package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// Every version of the interface carries the collectives and keeps NCCL's contract, over lanes of either kind.
func TestVersions(t *testing.T) {
	tests := []struct {
		carrier  string
		topology string
		env      []string
		lane     string // of a node to the next
	}{
		{"rdma", triangle, nil, `lane 0 rdma0:1 -> rdma1:1 `},
		{"tcp", fabric.Ring("a", "b", "c").Plain().Topology(), []string{"NCCL_MESH_TRANSPORT=tcp"}, `lane 0 next -> prev tcp 192.168.`},
	}
	for _, tt := range tests {
		for version := 5; version <= 12; version++ {
			t.Run(fmt.Sprintf("%s v%d", tt.carrier, version), func(t *testing.T) {
				if (tt.carrier != "rdma" || version != 8) && (tt.carrier != "tcp" || version != 12) {
					require.Full(t, "tests/netdriver TestEverything and the same test of two versions")
				}
				t.Parallel()
				comms, work, cases := "1", "allreduce,allgather,alltoall,sendrecv,soak", 0
				if full {
					comms = "2"
				}
				if full || tt.carrier == "rdma" {
					work, cases = work+",contract", 30
				}
				j := newFabric(t, tt.topology).start(spec{env: tt.env, args: []string{"--api", fmt.Sprintf("v%d", version),
					"--work", work, "--messages", "100", "--max", "1M", "--factor", "16", "--iters", "2", "--comms", comms}}).ok()
				out := j.rank("a").output()
				if n := strings.Count(out, "# Out of bounds values : 0 OK"); n != 4 {
					j.errorf("%d tables without an error, want 4", n)
				}
				if passed, failed := strings.Count(out, "PASS  "), strings.Count(out, "FAIL  "); passed < cases || failed != 0 {
					j.errorf("%d cases of the contract passed and %d failed", passed, failed)
				}
				for _, pair := range [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}} {
					j.must(pair[0], `NET/Mesh : `+pair[0]+` -> `+pair[1]+` conn \d+: `+tt.lane)
				}
			})
		}
	}
}

// The same work on other fabrics: other devices, other libraries, other cabling.
func TestFabrics(t *testing.T) {
	old := func(version string) []string {
		return []string{"NCCL_MESH_IBVERBS=" + built + "/fakeverbs/old/" + version + "/libibverbs.so.1"}
	}
	each := func(more string) string { // the triangle with something added to every port
		var b strings.Builder
		for line := range strings.Lines(triangle) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "port") {
				line += " " + more
			}
			b.WriteString(line + "\n")
		}
		return b.String()
	}
	tests := []struct {
		name     string
		topology string
		env      []string
		want     string // said on node a
	}{
		{"rdma-core of Debian 8", triangle, old("1.1"), `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3`},
		{"rdma-core of Debian 10", triangle, old("1.8"), `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3`},
		{"rdma-core of Debian 11", triangle, old("1.10"), `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3`},
		{"rdma-core of Debian 12", triangle, old("1.12"), `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3`},
		{"many plain writes in a part", each("msg 8192"), nil, `a -> b`},
		{"messages of an odd size", each("msg 5000"), nil, `a -> b`},
		{"no inline data", each("inline 0"), nil, `a -> b`},
		{"RoCE v2 only", each("gids rxe"), nil, `lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 1`},
		{"RoCE v1 wanted", triangle, []string{"NCCL_IB_ROCE_VERSION_NUM=1"}, `lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 2`},
		{"large MTU", each("mtu 9000"), nil, `lane 0 rdma0:1 -> rdma1:1 mtu 4096`},
		{"adapters with ECE", each("ece 15b3:10000005"), nil, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3 ece 0x10000005$`},
		{"adapters with ECE that is off", each("ece 15b3:10000005"), []string{"NCCL_IB_ECE_ENABLE=0"}, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3$`},
		{"adapters with ECE, whose firmware lacks it", each("ece 15b3:0"), nil, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3$`},
		{"adapters with ECE, and a library without", each("ece 15b3:10000005"), old("1.8"), `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3$`},
		{"two queue pairs on a path", triangle, []string{"NCCL_IB_QPS_PER_CONNECTION=2"}, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 .*, lane 1 rdma0:1 -> rdma1:1 `},
		{"other names in another order on every node", `
port a mlx5_1 netdev enp1 addr 10.0.1.1/24
port a mlx5_0 netdev enp0 addr 10.0.3.1/24
port b rocep1s0 netdev x0 addr 10.0.2.1/24
port b alpha netdev x1 addr 10.0.1.2/24
port c bnxt_re0 port 1 netdev y0 addr 10.0.2.2/24
port c bnxt_re0 port 2 netdev y1 addr 10.0.3.2/24
link a:mlx5_1 b:alpha
link b:rocep1s0 c:bnxt_re0/1
link c:bnxt_re0/2 a:mlx5_0
`, nil, `a -> b conn \d+: lane 0 mlx5_1:1 -> alpha:1 `},
		{"two cables between each two, one of them unplugged", triangle + `
port a two netdev q0 addr 192.168.101.1/24
port b two netdev q0 addr 192.168.101.2/24
port a three netdev q1 addr 192.168.102.1/24
port b three netdev q1 addr 192.168.102.2/24
link a:two b:two
`, nil, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 .*, lane 1 two:1 -> two:1 `},
		{"IPv6", `
port a r0 netdev p0 addr fd00:1::1/64
port a r1 netdev p1 addr fd00:3::1/64
port b r0 netdev p0 addr fd00:2::1/64
port b r1 netdev p1 addr fd00:1::2/64
port c r0 netdev p0 addr fd00:3::2/64
port c r1 netdev p1 addr fd00:2::2/64
link a:r0 b:r1
link b:r0 c:r1
link c:r0 a:r1
`, nil, `a -> b conn \d+: lane 0 r0:1 -> r1:1 `},
		{"link-local addresses only", `
port a r0 netdev p0
port a r1 netdev p1
port b r0 netdev p0
port b r1 netdev p1
port c r0 netdev p0
port c r1 netdev p1
link a:r0 b:r1
link b:r0 c:r1
link c:r0 a:r1
`, nil, `a -> b conn \d+: lane 0 r0:1 -> r1:1 `},
		// Every cable is a subnet, all with one prefix and the same LIDs: only a trial finds the right ports.
		{"InfiniBand", `
port a r0 layer infiniband
port a r1 layer infiniband
port b r0 layer infiniband
port b r1 layer infiniband
port c r0 layer infiniband
port c r1 layer infiniband
link a:r0 b:r1
link b:r0 c:r1
link c:r0 a:r1
`, nil, `a -> b conn \d+: lane 0 r0:1 -> r1:1 mtu 4096 lid 2$`},
		{"InfiniBand, LIDs of one manager", `
port a r0 layer infiniband lid 11
port a r1 layer infiniband lid 12
port b r0 layer infiniband lid 21 mtu 2048
port b r1 layer infiniband lid 22 mtu 2048
port c r0 layer infiniband lid 31
port c r1 layer infiniband lid 32
link a:r0 b:r1
link b:r0 c:r1
link c:r0 a:r1
`, nil, `a -> b conn \d+: lane 0 r0:1 -> r1:1 mtu 2048 lid 22$`},
		{"the same private address everywhere on the far ports", `
port a r0 netdev p0 addr 192.168.1.1/24
port a r1 netdev p1 addr 192.168.3.1/24
port a x netdev px addr 10.0.0.1/8
port b r0 netdev p0 addr 192.168.2.1/24
port b r1 netdev p1 addr 192.168.1.2/24
port b x netdev px addr 10.0.0.1/8
port c r0 netdev p0 addr 192.168.3.2/24
port c r1 netdev p1 addr 192.168.2.2/24
port c x netdev px addr 10.0.0.1/8
link a:r0 b:r1
link b:r0 c:r1
link c:r0 a:r1
`, nil, `a -> b conn \d+: lane 0 r0:1 -> r1:1 `},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !slices.Contains([]string{"rdma-core of Debian 8", "InfiniBand, LIDs of one manager", "adapters with ECE"}, tt.name) {
				require.Full(t, "tests/fakeverbs TestOldSymbols, transport/topology TestCandidates and the same test of two others")
			}
			t.Parallel()
			j := newFabric(t, tt.topology).start(spec{env: tt.env, args: []string{"--max", "1M", "--factor", "32", "--iters", "1"}}).ok()
			j.must("a", tt.want)
		})
	}
}

// Queue-pair numbers use all their 24 bits.
func TestQueuePairNumbers(t *testing.T) {
	require.Full(t, "ibv TestQP")
	f := newFabric(t, triangle)
	j := f.start(spec{args: []string{"--work", "soak", "--duration", "1", "--max", "64K"}})
	j.await("a", `c -> a conn`)
	var all uint32
	for _, node := range f.Nodes {
		numbers, _ := f.queuePairs(node)
		for _, n := range numbers {
			all |= n
		}
	}
	j.ok()
	if all != 1<<24-1 {
		t.Errorf("queue pairs used the bits %#x", all)
	}
}
