package main

import (
	"bytes"
	"context"
	"errors"
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

// The demonstrations show a lane over the right cable for every pair of nodes, and
// tables without an error.
func TestDemo(t *testing.T) {
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
