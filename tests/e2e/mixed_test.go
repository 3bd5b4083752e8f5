package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// Where a node cannot load libibverbs, the others use RDMA among themselves and TCP to that node, and every node says why TCP is used, once for
// each peer.
func TestWithoutRDMA(t *testing.T) {
	t.Parallel()
	j := newFabric(t, triangle).start(spec{env: []string{auto}, on: map[string][]string{"c": {"NCCL_MESH_IBVERBS=none.so"}},
		args: []string{"--work", "sendrecv,allreduce", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
	j.use(map[string][]string{
		"a -> b": {"rdma0:1 -> rdma1:1 mtu 1024 gid 3"}, "b -> a": {"rdma1:1 -> rdma0:1 mtu 1024 gid 3"},
		"a -> c": {"p1 -> p0 tcp 192.168.3.1 -> 192.168.3.2"}, "c -> a": {"p0 -> p1 tcp 192.168.3.2 -> 192.168.3.1"},
		"b -> c": {"p0 -> p1 tcp 192.168.2.1 -> 192.168.2.2"}, "c -> b": {"p1 -> p0 tcp 192.168.2.2 -> 192.168.2.1"},
	})
	for _, node := range []string{"a", "b"} {
		j.once(node, `WARN.*TCP`)
		j.once(node, fmt.Sprintf(`NCCL WARN NET/Mesh : %[1]s and c talk over TCP, slower than RDMA, although %[1]s has rdma0:1 \(p0\), rdma1:1 \(p1\): c offers no RDMA port; its log says why`, node))
	}
	j.once("c", `NCCL WARN NET/Mesh : TCP is used, slower than RDMA, although there is rdma0:1 \(p0\), rdma1:1 \(p1\): .*cannot load none.so.*install package libibverbs1`)
	j.once("c", `WARN`)
}
