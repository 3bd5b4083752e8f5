package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/topo"
)

// chain is nodes in a line, a cable to the next each: with RDMA, or without.
func chain(nodes string, rdma bool) string {
	var ports, links strings.Builder
	name := ""
	for i, n := range nodes {
		for _, p := range []struct {
			iface string
			net   int
			host  int
			there bool
		}{{"prev", i, 2, i > 0}, {"next", i + 1, 1, i < len(nodes)-1}} {
			if !p.there {
				continue
			}
			if name = p.iface; rdma {
				name = "r" + p.iface
				fmt.Fprintf(&ports, "port %c %s netdev %s addr 192.168.%d.%d/24\n", n, name, p.iface, p.net, p.host)
			} else {
				fmt.Fprintf(&ports, "netif %c %s addr 192.168.%d.%d/24\n", n, name, p.net, p.host)
			}
		}
		if i > 0 {
			prefix := strings.TrimSuffix(name, "next")
			prefix = strings.TrimSuffix(prefix, "prev")
			fmt.Fprintf(&links, "link %c:%snext %c:%sprev mtu 9000\n", nodes[i-1], prefix, n, prefix)
		}
	}
	return ports.String() + links.String()
}

// Routes through other nodes, over two cables and over three, are told as packets have passed them. A route that fails is told with
// the nodes, the relay and the reason; first is the line that a user must see.
func TestDoctorOfRelays(t *testing.T) {
	t.Parallel()
	type test struct {
		name     string
		settings map[string]string // of nodes
		drop     string            // a node that drops the queries of neighbour discovery
		hold     string            // a node on which another program holds all ports of NCCL_MESH_PORTS
		want     []string          // shown findings, without notes
	}
	const key = "NCCL_MESH_KEY=of-one-node-alone"
	first := []test{
		{name: "nothing"},
		{name: "a relay that is off", settings: map[string]string{"b": "NCCL_MESH_RELAY=0"}, want: []string{
			"fail a, b, c, d: a–c, a–d, b–d share no cable, and nothing passes between them: b has NCCL_MESH_RELAY=0",
		}},
	}
	rest := []test{
		{name: "all relays off", settings: map[string]string{"b": "NCCL_MESH_RELAY=0", "c": "NCCL_MESH_RELAY=0"}, want: []string{
			"fail a, c: they share no cable, and nothing passes through b: b has NCCL_MESH_RELAY=0",
			"fail a, d: they share no cable, and nothing passes through b and c: b has NCCL_MESH_RELAY=0",
			"fail b, d: they share no cable, and nothing passes through c: c has NCCL_MESH_RELAY=0",
		}},
		{name: "a relay with another key", settings: map[string]string{"c": key}, want: []string{
			"fail a, b, c, d: a–c, a–d, b–d share no cable, and nothing passes between them: c has a NCCL_MESH_KEY, and the others have none",
		}},
		{name: "queries of neighbour discovery are dropped", drop: "b", want: []string{
			"fail a, c: they share no cable, and nothing passes through b: b:prev does not answer neighbour discovery",
			"fail a, d: they share no cable, and nothing passes through b and c: b:prev does not answer neighbour discovery",
			"fail b, d: they share no cable, and nothing passes through c: b:next does not answer neighbour discovery",
		}},
		{name: "a relay that has no port to listen at", settings: map[string]string{"b": "NCCL_MESH_PORTS=30000-30001"}, hold: "b", want: []string{
			"fail b: the plugin fails there: local limit: control: node ",
		}},
	}
	for _, rdma := range []bool{false, true} {
		tests := first
		switch {
		case require.IsFull():
			tests = append(tests[:len(tests):len(tests)], rest...)
		case rdma:
			tests = first[:1]
		}
		f, command := nodes(t, chain("abcd", rdma))
		if !rdma { // without the node between there is nothing to measure, which is no success
			if status, stdout, stderr := command("bench", "link", "a", "c"); status == 0 || stdout != "" || !strings.Contains(stderr, "no cable joins the hosts") {
				t.Errorf("status %d, %s%s", status, stdout, stderr)
			}
		}
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, RDMA %v", tt.name, rdma), func(t *testing.T) {
				for node, setting := range tt.settings {
					file := filepath.Join(f.Dir, "env."+node)
					if err := os.WriteFile(file, []byte(setting), 0o600); err != nil {
						t.Fatal(err)
					}
					defer os.Remove(file)
				}
				if tt.drop != "" {
					ip := func(args string) {
						if out, err := f.Command(t.Context(), tt.drop, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
							t.Fatalf("ip %s: %v: %s", args, err, out)
						}
					}
					for _, all := range []string{"0.0.0.0/0", "::/0"} {
						ip(fmt.Sprintf("xfrm policy add src %[1]s dst %[1]s proto udp dport %[2]d dir in action block", all, topo.DiscoveryPort))
					}
					defer ip("xfrm policy flush")
				}
				if tt.hold != "" {
					holdPorts(t, f, tt.hold, tt.settings[tt.hold])
				}
				status, stdout, stderr := command("doctor", "a", "b", "c", "d", "--json", "--ignore", "machine-id-cloned,memlock,mem-low,shm-small,settings-differ")
				var bad, notes []string
				for _, line := range evidence(t, stdout) {
					switch {
					case strings.HasPrefix(line, "fail ") || strings.HasPrefix(line, "warn "):
						bad = append(bad, line)
					case strings.Contains(line, "share no cable"):
						notes = append(notes, line)
					}
				}
				if tt.want == nil {
					want := []string{"info a, b, c, d: a–c, a–d, b–d share no cable, and talk through others"}
					if status != 0 || bad != nil || !slices.Equal(notes, want) {
						t.Errorf("status %d, %q, %q, want %q: %s", status, bad, notes, want, stderr)
					}
					return
				}
				as := func(got, want string) bool { return strings.HasPrefix(got, want) } // a message of the plugin may go on
				if status != statusFailed || !slices.EqualFunc(bad, tt.want, as) {
					t.Errorf("status %d, %q, want %q: %s", status, bad, tt.want, stderr)
				}
			})
		}
	}
}

// holdPorts has a relay for other nodes than these hold the ports that a setting names, until the test ends.
func holdPorts(t *testing.T, f *fabric.Fabric, node, setting string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := f.Command(t.Context(), node, self, "relay", "--drain", "1ms")
	c.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", setting, "NCCL_MESH_KEY=of nobody beside it", "NCCL_SOCKET_IFNAME="+fabric.ManagementIface)
	out, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	late := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer late.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "ready to relay") {
			go func() {
				for lines.Scan() { // so that it never blocks
				}
			}()
			return
		}
	}
	t.Fatal("the relay has not begun")
}
