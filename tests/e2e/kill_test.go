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

// A rank kills itself in mid-transfer and leaves children, one of which it forked before it connected: the driver judges that every connection
// with it says so in time, and no other.
func TestKilledInTransfer(t *testing.T) {
	for _, tt := range []struct{ transport, args string }{
		{"rdma", "--seed 5 --early-orphans 1 --orphans 1 --chunk 64K"},
		{"tcp", "--seed 7 --orphans 1 --open-files " + manyFiles(t)},
	} {
		t.Run(tt.transport+" "+tt.args, func(t *testing.T) {
			if tt.transport != "rdma" {
				require.Full(t, "tests/sim/mesh TestProcessDies and the same test over RDMA")
			}
			t.Parallel()
			f := newFabric(t, triangle)
			f.start(spec{env: []string{"NCCL_MESH_TRANSPORT=" + tt.transport},
				args: append(strings.Fields(tt.args), "--work", "die", "--die-limit-ms", fmt.Sprint(soon.Milliseconds()/2))}).oneKilled(`every connection with it said so, the last after .* ms`)
		})
	}
}

// oneKilled waits for the job, and fails the test unless one rank was killed and the others ended with nothing wrong, and said something that matches.
func (j *job) oneKilled(pattern string) {
	j.f.t.Helper()
	j.wait()
	killed := 0
	for _, r := range j.ranks {
		switch {
		case r.status == 128+9:
			killed++
		case r.status != 0:
			j.fatalf("node %s: status %d", r.node, r.status)
		default:
			_, text, _ := r.said(pattern)
			j.f.t.Log(text)
			j.clean(r)
		}
	}
	if killed != 1 {
		j.errorf("%d ranks were killed", killed)
	}
}
