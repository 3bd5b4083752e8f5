package e2e

import (
	"testing"

	"ncclmesh/tests/require"
)

// newContainers makes nodes whose RDMA devices speak of an interface p0 that is not there.
func newContainers(t *testing.T, topology string) *mesh {
	t.Helper()
	f := newFabric(t, topology)
	for _, node := range f.Nodes {
		f.run(node, "ip link set p0 down")
		f.run(node, "ip link set p0 name elsewhere")
	}
	return f
}

// In a container that has the RDMA devices and a network namespace of its own, where the ports' interfaces are not, RoCE v2
// is used, and the cause is named.
func TestInterfaceOutside(t *testing.T) {
	require.Full(t, "transport/topology TestDiscoverOutside")
	t.Parallel()
	f := newContainers(t, `
		port a rdma0 netdev p0 addr 192.168.1.1/24 gids mlx5
		port b rdma0 netdev p0 addr 192.168.1.2/24 gids mlx5
		link a:rdma0 b:rdma0`)
	j := f.start(spec{args: []string{"--work", "sendrecv", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
	j.use(map[string][]string{"a -> b": {"rdma0:1 -> rdma0:1 mtu 1024 gid 1"}, "b -> a": {"rdma0:1 -> rdma0:1 mtu 1024 gid 1"}})
	for _, node := range f.Nodes {
		j.once(node, `NCCL WARN NET/Mesh : interface p0 of rdma0 is not in this network namespace: run the container with --network host`)
	}
}

// Where no way is found, the error names the cause too.
func TestNoPathOutside(t *testing.T) {
	require.Full(t, "transport/topology TestDiscoverOutside")
	t.Parallel()
	j := newContainers(t, noWay).start(spec{nodes: []string{"a", "b"}, args: []string{"--work", "sendrecv", "--max", "8", "--iters", "1"}})
	j.failed()
	j.one(`connect: .*no path between .*\. The interface p0 of r0 is not in this network namespace: run the container with --network host`)
}
