package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

// sockets are three nodes without RDMA, with a cable between each two.
const sockets = `
netif a e1 addr 192.168.1.1/24
netif a e2 addr 192.168.3.1/24
netif b e1 addr 192.168.1.2/24
netif b e2 addr 192.168.2.1/24
netif c e1 addr 192.168.2.2/24
netif c e2 addr 192.168.3.2/24
link a:e1 b:e1
link b:e2 c:e1
link c:e2 a:e2
`

// blocked has b drop what comes from the other end of its cable to a node: all of it, or that of a protocol.
func blocked(from, iface, selector string) string {
	return "for a in $(ip -o addr show dev " + iface + " | awk '{print $4}' | cut -d/ -f1 | grep -v :); do ip xfrm policy add src ${a%.*}.0/24 dst 0.0.0.0/0 " + selector + " dir in action block; done;" +
		"ip xfrm policy add src " + from + "/128 dst ::/0 " + selector + " dir in action block"
}

// Without RDMA each fault of a cable is found, too, and what follows from it is not shown.
func TestDoctorOfSockets(t *testing.T) {
	t.Parallel()
	f, command := nodes(t, sockets)
	shell := func(t *testing.T, node, script string) string {
		t.Helper()
		out, err := f.Command(t.Context(), node, "sh", "-ec", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %s: %v: %s", node, script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	local := func(node, iface string) string {
		return shell(t, node, "ip -6 -o addr show dev "+iface+" scope link | awk '{print $4}' | cut -d/ -f1")
	}
	a, c := local("a", "e1"), local("c", "e1")
	const free = "ip xfrm policy flush"
	type test struct {
		name             string
		node, harm, mend string
		settings         string // of b
		want             []string
	}
	tests := []test{
		{name: "nothing"},
		{name: "an interface switched off", node: "a", harm: "ip link set e1 down", mend: "ip link set e1 up; until ip link show e1 | grep -q LOWER_UP; do sleep 0.01; done", want: []string{"fail port-down a:e1", "fail port-down b:e1"}},
		{name: "a queueing discipline", node: "a", harm: "tc qdisc add dev e1 root tbf rate 1gbit burst 64k latency 50ms", mend: "tc qdisc del dev e1 root", want: []string{"warn port-shaped a:e1"}},
		{name: "settings of one node", settings: "NCCL_MESH_TOPOLOGY=ring\nNCCL_ALGO=tree", want: []string{"fail settings-differ a, c, b", "fail settings-differ a, c, b"}},
		{name: "a bootstrap interface of its own", settings: "NCCL_SOCKET_IFNAME=e1", want: []string{"fail bootstrap-reach c, b"}},
	}
	if require.IsFull() {
		tests = append(tests, []test{
			{name: "a cable drops everything", node: "b", harm: blocked(a, "e1", ""), mend: free, want: []string{"fail cable-dead a:e1 ═ b:e1"}},
			{name: "a node drops everything", node: "b", harm: blocked(a, "e1", "") + ";" + blocked(c, "e2", ""), mend: free, want: []string{"fail node-silent b"}},
			{name: "TCP is dropped", node: "b", harm: blocked(a, "e1", "proto tcp"), mend: free, want: []string{"fail tcp-filtered a:e1 ═ b:e1"}},
			{
				name: "a node drops TCP", node: "b", harm: blocked(a, "e1", "proto tcp") + ";" + blocked(c, "e2", "proto tcp"), mend: free,
				want: []string{"fail tcp-filtered a:e1 ═ b:e1", "fail tcp-filtered b:e2 ═ c:e1"},
			},
			{
				name: "a wrong neighbour", node: "a", harm: "ip neigh replace 192.168.1.2 lladdr 02:00:00:00:00:99 dev e1 nud permanent", mend: "ip neigh del 192.168.1.2 dev e1",
				want: []string{"fail neighbour-wrong a:e1"},
			},
			{name: "a route to nowhere", node: "a", harm: "ip route add blackhole 192.168.1.2/32", mend: "ip route del blackhole 192.168.1.2/32", want: []string{"fail route-wrong a:e1"}},
			{name: "a route over another cable", node: "a", harm: "ip route add 192.168.1.2/32 dev e2", mend: "ip route del 192.168.1.2/32 dev e2", want: []string{"warn route-wrong a:e1"}},
		}...)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.harm != "" {
				shell(t, tt.node, tt.harm)
				defer shell(t, tt.node, tt.mend)
			}
			if err := os.WriteFile(filepath.Join(f.Dir, "env.b"), []byte(tt.settings), 0o600); err != nil {
				t.Fatal(err)
			}
			status, stdout, stderr := command("doctor", "a", "b", "c", "--json", "--ignore", "machine-id-cloned,mem-low,shm-small")
			if diff := cmp.Diff(tt.want, found(t, stdout)); diff != "" {
				t.Errorf("found (-want +got):\n%s%s", diff, stderr)
			}
			if want := min(len(tt.want), 1); status != want {
				t.Errorf("status %d, want %d: %s", status, want, stderr)
			}
		})
	}
}

// A cable that is held back to a tenth is measured as that, or, where other programs take the processors, it is not known.
func TestDoctorMeasuresSockets(t *testing.T) {
	require.Full(t, "tools/ncclmesh/doctor TestFindings")
	t.Parallel()
	f, command := nodes(t, sockets)
	if out, err := f.Command(t.Context(), "a", "tc", strings.Fields("qdisc add dev e1 root tbf rate 500mbit burst 64k latency 50ms")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, stdout, stderr := command("doctor", "a", "b", "c", "--bench", "--only", "cable-slow", "--json")
	said := strings.Join(evidence(t, stdout), "\n")
	if !regexp.MustCompile(`(?m)^(fail|unknown) a:e1 ═ b:e1: 0\.\d+ Gb/s one way over e1; `).MatchString(said) {
		t.Errorf("it says %q: %s", said, stderr)
	}
}
