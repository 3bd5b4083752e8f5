package e2e

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// manyFiles is a number of open files that few processes have: more than 65536, if this machine permits.
func manyFiles(t *testing.T) string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(min(70000, limit.Max-4096))
}

// A rank kills itself in mid-transfer: the driver judges that every connection with it says so in time, and no other.
func TestKilledInTransfer(t *testing.T) {
	tests := []struct {
		transport, args string
		sample          bool
	}{
		{"rdma", "--seed 1", false},
		{"rdma", "--seed 2 --die-rank 0 --comms 2", false},
		{"rdma", "--seed 3 --die-rank 1 --chunk 4M --depth 2", false},
		{"rdma", "--seed 4 --orphans 2", false},
		{"rdma", "--seed 5 --early-orphans 1 --orphans 1 --chunk 64K", true},
		{"rdma", "--seed 6 --api v8 --chunk 8 --depth 32", false},
		{"tcp", "--seed 7 --orphans 1 --open-files " + manyFiles(t), false},
	}
	for _, tt := range tests {
		t.Run(tt.transport+" "+tt.args, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "tests/sim/mesh TestProcessDies")
			}
			t.Parallel()
			f := newFabric(t, triangle)
			j := f.start(spec{env: []string{"NCCL_MESH_TRANSPORT=" + tt.transport},
				args: append(strings.Fields(tt.args), "--work", "die", "--die-limit-ms", fmt.Sprint(soon.Milliseconds()/2))}).wait()
			killed := 0
			for _, r := range j.ranks {
				if r.status == 128+9 {
					killed++
					continue
				}
				if r.status != 0 {
					j.fatalf("node %s: status %d", r.node, r.status)
				}
				_, text, _ := r.said(`every connection with it said so, the last after .* ms`)
				t.Log(text)
				j.clean(r)
			}
			if killed != 1 {
				j.errorf("%d ranks were killed", killed)
			}
		})
	}
}
