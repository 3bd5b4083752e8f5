package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// run runs a command on a node to its end.
func (f *mesh) run(node, command string) {
	f.t.Helper()
	args := strings.Fields(command)
	if out, err := f.command(node, args[0], args[1:]...).CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %s: %v\n%s", node, command, err, out)
	}
}

// Nodes of a routed fabric, whose only IPv4 addresses are on the loopback interface and whose cables have link-local ones,
// talk over the cables.
func TestRoutedLoopback(t *testing.T) {
	require.Full(t, "transport/topology TestLoopbackIsNotTold")
	t.Parallel()
	f := newFabric(t, `
		netif a p0
		netif b p0
		link a:p0 b:p0`)
	for i, node := range []string{"a", "b"} {
		own, other := i+1, 2-i
		f.run(node, "ip -6 addr flush dev p0") // those that the kernel makes are of use only once it has looked for duplicates
		f.run(node, fmt.Sprintf("ip addr add fe80::%d/64 dev p0 nodad", own))
		f.run(node, fmt.Sprintf("ip addr add 10.10.10.%d/32 dev lo", own))
		f.run(node, fmt.Sprintf("ip route add 10.10.10.%d/32 via inet6 fe80::%d dev p0 src 10.10.10.%d", other, other, own))
	}
	j := f.start(spec{env: []string{auto, "NCCL_SOCKET_IFNAME=lo", "NCCL_MESH_IFNAME=^mgmt"}, args: []string{"--work", "sendrecv", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
	j.use(map[string][]string{"a -> b": {"p0 -> p0 tcp fe80::1 -> fe80::2"}, "b -> a": {"p0 -> p0 tcp fe80::2 -> fe80::1"}})
	for _, node := range []string{"a", "b"} {
		if n := j.rank(node).count(`127\.0\.0\.1`); n != 0 {
			j.errorf("node %s speaks of 127.0.0.1", node)
		}
	}
}
