package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/mesh"
	"ncclmesh/tests/require"
)

func TestMain(m *testing.M) {
	mesh.Main()
	os.Exit(m.Run())
}

// built makes the plugin, the driver and the fake library, and returns where they are.
func built(t *testing.T) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "../../../..")
	build := filepath.Join(root, "build/mesh")
	for _, tool := range []string{"make", "gcc", "/usr/include/infiniband/verbs.h"} {
		_, err := exec.LookPath(tool)
		if strings.HasPrefix(tool, "/") {
			_, err = os.Stat(tool)
		}
		if err != nil {
			require.Skip(t, require.CC, err.Error())
		}
	}
	if out, err := exec.Command("make", "-C", root, "build", "netdriver", "fakeverbs", "BUILD="+build).CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	return build
}

// NCCL's contract and a soak over TCP lanes, for every version.
func TestContractOverTCP(t *testing.T) {
	build := built(t)
	for version := 5; version <= 12; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			m := mesh.Triangle()
			var log strings.Builder
			passed, failed, soaks := 0, 0, 0
			err := overTCP(ctx, m, build, []string{filepath.Join(build, "netdriver"), "--plugin", filepath.Join(build, "libnccl-net-mesh.so"),
				"--nranks", "3", "--api", fmt.Sprintf("v%d", version), "--work", "allreduce,alltoall,contract,soak", "--max", "1M", "--factor", "32", "--iters", "1", "--messages", "100"},
				func(node, line string) {
					log.WriteString(node + ": " + line + "\n")
					if node != m.Nodes[0] {
						return
					}
					switch {
					case strings.HasPrefix(line, "PASS  "):
						passed++
					case strings.HasPrefix(line, "FAIL  "):
						failed++
					case strings.Contains(line, "# soak:") && strings.HasSuffix(line, "#wrong 0"):
						soaks++
					}
				})
			if errors.Is(err, mesh.ErrUnable) {
				require.Skip(t, require.Netns, err.Error())
			}
			if err != nil || passed < 30 || failed != 0 || soaks == 0 || !strings.Contains(log.String(), " tcp 192.168.") {
				t.Errorf("%v; %d cases passed, %d failed, %d soaks right\n%s", err, passed, failed, soaks, &log)
			}
		})
	}
}

// The demonstrations show a lane over the right cable for every pair of nodes, and
// tables without an error.
func TestDemo(t *testing.T) {
	build := built(t)
	tests := []struct {
		name  string
		start starter
		lanes []string // from a to b, b to a, b to c, a to c
		kind  string
	}{
		{"tcp", overTCP, []string{
			"node-a   -> node-b    next       -> prev        tcp 192.168.100.1 -> 192.168.100.2\n",
			"node-b   -> node-a    prev       -> next        tcp 192.168.100.2 -> 192.168.100.1\n",
			"node-b   -> node-c    next       -> prev        tcp 192.168.101.1 -> 192.168.101.2\n",
			"node-a   -> node-c    prev       -> next        tcp 192.168.102.2 -> 192.168.102.1\n"}, " tcp "},
		{"fake", overFake, []string{
			"node-a   -> node-b    rdma-next:1 -> rdma-prev:1",
			"node-b   -> node-a    rdma-prev:1 -> rdma-next:1",
			"node-b   -> node-c    rdma-next:1 -> rdma-prev:1",
			"node-a   -> node-c    rdma-prev:1 -> rdma-next:1"}, " mtu "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var out bytes.Buffer
			err := demo(ctx, &out, build, tt.start)
			if errors.Is(err, mesh.ErrUnable) {
				require.Skip(t, require.Netns, err.Error())
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, want := range append(tt.lanes, "# sendrecv: 3 ranks", "# allreduce: 3 ranks", "# Out of bounds values : 0 OK", "#wrong 0.\n") {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output lacks %q", want)
				}
			}
			if n := strings.Count(out.String(), tt.kind); n != 6 {
				t.Errorf("%d lanes are shown, want one each way on every cable", n)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}
