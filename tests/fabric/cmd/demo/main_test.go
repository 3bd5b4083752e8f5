package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// The demonstrations show a lane over the right cable for every pair of nodes, and
// tables without an error.
func TestDemo(t *testing.T) {
	build, err := fabric.Build("demo", "build", "netdriver", "fakeverbs")
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.Netns, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		mesh  fabric.Mesh
		lanes []string // from a to b, b to a, b to c, a to c
		kind  string
	}{
		{"tcp", fabric.Triangle().Plain(), []string{
			"node-a   -> node-b    next       -> prev        tcp 192.168.100.1 -> 192.168.100.2\n",
			"node-b   -> node-a    prev       -> next        tcp 192.168.100.2 -> 192.168.100.1\n",
			"node-b   -> node-c    next       -> prev        tcp 192.168.101.1 -> 192.168.101.2\n",
			"node-a   -> node-c    prev       -> next        tcp 192.168.102.2 -> 192.168.102.1\n"}, " tcp "},
		{"fake", fabric.Triangle(), []string{
			"node-a   -> node-b    rdma-next:1 -> rdma-prev:1",
			"node-b   -> node-a    rdma-prev:1 -> rdma-next:1",
			"node-b   -> node-c    rdma-next:1 -> rdma-prev:1",
			"node-a   -> node-c    rdma-prev:1 -> rdma-next:1"}, " mtu "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var out bytes.Buffer
			err := demo(ctx, &out, build, tt.mesh)
			if errors.Is(err, fabric.ErrUnable) {
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
