package e2e

import (
	"fmt"
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

// Other libraries and other devices carry the same work.
func TestFabrics(t *testing.T) {
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
		sample   bool
	}{
		{"rdma-core of Debian 8", triangle, []string{"NCCL_MESH_IBVERBS=" + built + "/fakeverbs/old/1.1/libibverbs.so.1"}, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3`, true},
		{"messages of an odd size, and no inline data", each("msg 5000 inline 0"), nil, `a -> b`, false},
		{"adapters with ECE", each("ece 15b3:10000005"), nil, `a -> b conn \d+: lane 0 rdma0:1 -> rdma1:1 mtu 1024 gid 3 ece 0x10000005$`, true},
		{"two ports of one device, and other names in another order on every node", `
port a mlx5_1 netdev enp1 addr 10.0.1.1/24
port a mlx5_0 netdev enp0 addr 10.0.3.1/24
port b rocep1s0 netdev x0 addr 10.0.2.1/24
port b alpha netdev x1 addr 10.0.1.2/24
port c bnxt_re0 port 1 netdev y0 addr 10.0.2.2/24
port c bnxt_re0 port 2 netdev y1 addr 10.0.3.2/24
link a:mlx5_1 b:alpha
link b:rocep1s0 c:bnxt_re0/1
link c:bnxt_re0/2 a:mlx5_0
`, nil, `a -> b conn \d+: lane 0 mlx5_1:1 -> alpha:1 `, false},
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
`, nil, `a -> b conn \d+: lane 0 r0:1 -> r1:1 mtu 2048 lid 22$`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "transport/topology TestCandidates and the same test of two others")
			}
			t.Parallel()
			j := newFabric(t, tt.topology).start(spec{env: tt.env, args: []string{"--max", "1M", "--factor", "32", "--iters", "1"}}).ok()
			j.must("a", tt.want)
		})
	}
}
