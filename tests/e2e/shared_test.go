package e2e

import (
	"testing"

	"ncclmesh/tests/require"
)

// Where the user names no interface, a network that all nodes share carries nothing between nodes that a cable joins, nor
// between those that cables join through another node, although nothing tells that it is slower than the cables.
func TestSharedNetwork(t *testing.T) {
	require.Full(t, "tests/e2e TestRelay and transport/topology TestCandidates")
	t.Parallel()
	f := newFabric(t, `
		netif a next addr 192.168.1.1/24
		netif b prev addr 192.168.1.2/24
		netif b next addr 192.168.2.1/24
		netif c prev addr 192.168.2.2/24
		link a:next b:prev
		link b:next c:prev`)
	j := f.start(spec{env: []string{auto, "NCCL_SOCKET_IFNAME="}, args: []string{"--work", "alltoall", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
	j.use(map[string][]string{
		"a -> b": {"next -> prev tcp 192.168.1.1 -> 192.168.1.2"}, "b -> a": {"prev -> next tcp 192.168.1.2 -> 192.168.1.1"},
		"b -> c": {"next -> prev tcp 192.168.2.1 -> 192.168.2.2"}, "c -> b": {"prev -> next tcp 192.168.2.2 -> 192.168.2.1"},
		"a -> c": {"next -> prev tcp 192.168.1.1 -> 192.168.2.2 checked through b"}, "c -> a": {"prev -> next tcp 192.168.2.2 -> 192.168.1.1 checked through b"},
	})
}

// It carries everything where there is nothing else.
func TestSharedNetworkAlone(t *testing.T) {
	require.Full(t, "tests/e2e TestFallsBackToTCP")
	t.Parallel()
	f := newFabric(t, `
		netif a x
		netif b x
		netif c x
		netif c y
		link a:x c:x
		link b:x c:y`)
	for _, node := range f.Nodes { // no cable leads anywhere
		f.run(node, "ip link set x down")
	}
	f.run("c", "ip link set y down")
	j := f.start(spec{env: []string{auto, "NCCL_SOCKET_IFNAME="}, args: []string{"--work", "alltoall", "--max", "64K", "--factor", "64", "--iters", "1"}}).ok()
	for _, node := range f.Nodes {
		j.must(node, `NET/Mesh : \w -> \w conn \d+: lane 0 mgmt0 -> mgmt0 tcp`)
	}
}
