package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ncclmesh/tests/mesh"
)

// overFake gives the nodes the RDMA devices of tests/fakeverbs.
func overFake(ctx context.Context, m mesh.Mesh, build string, args []string, line func(node, line string)) error {
	fakenet := filepath.Join(build, "fakeverbs", "fakenet")
	if _, err := os.Stat(fakenet); err != nil {
		return fmt.Errorf("%w; run: make fakeverbs", err)
	}
	dir, err := os.MkdirTemp("", "mesh")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "topology.txt")
	if err := os.WriteFile(file, []byte(topology(m)), 0o600); err != nil {
		return err
	}
	var script strings.Builder
	fmt.Fprintf(&script, "case $FAKEVERBS_NODE in\n")
	for _, n := range m.Nodes {
		fmt.Fprintf(&script, "%s) rank=%s;;\n", n, rank(m, n))
	}
	fmt.Fprintf(&script, `esac
export NCCL_DEBUG=INFO NCCL_MESH_TRANSPORT=rdma NCCL_SOCKET_IFNAME=mgmt0 NCCL_HOSTID=$FAKEVERBS_NODE
exec "$@" --rank $rank --rendezvous %s:7000
`, m.Nodes[0])
	cmd := exec.CommandContext(ctx, fakenet, append([]string{"run", file, "sh", "-c", script.String(), "rank"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it takes its nodes down
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if node, text, ok := strings.Cut(lines.Text(), ":"); ok {
			line(node, strings.TrimPrefix(text, " "))
		}
	}
	return cmd.Wait()
}

// topology is the mesh in the words of tests/fakeverbs: a device for each end of a cable.
func topology(m mesh.Mesh) string {
	var b strings.Builder
	for _, c := range m.Cables {
		var ends [2]string
		for i, e := range c.Ends {
			device := "rdma-" + e.Iface
			ends[i] = e.Node + ":" + device
			fmt.Fprintf(&b, "port %s %s netdev %s addr %s/%d\n", e.Node, device, e.Iface, e.Addr, c.Net.Bits())
		}
		fmt.Fprintf(&b, "link %s %s\n", ends[0], ends[1])
	}
	return b.String()
}
