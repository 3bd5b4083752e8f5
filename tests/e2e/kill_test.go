package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// A rank is killed at every step of setting connections up, of moving data over them and of closing them: as it makes the k-th call of
// a verb. The other is told that its peer is lost, soon, and nothing is left in the fabric: a new job runs on it.
func TestKilledAtEveryStep(t *testing.T) {
	for _, orphans := range []int{0, 2} {
		for _, verb := range []string{"alloc_pd", "create_cq", "reg_mr", "create_qp", "modify_qp", "post_recv", "post_send", "poll_cq", "dereg_mr", "destroy_qp"} {
			t.Run(fmt.Sprintf("%s, %d children", verb, orphans), func(t *testing.T) {
				if orphans == 0 || verb != "create_qp" && verb != "post_send" {
					require.Full(t, "tests/sim/mesh TestProcessDies and the same test of two verbs")
				}
				t.Parallel()
				f := newFabric(t, pair)
				told, slowest := 0, time.Duration(0)
				k, step, steps := 0, 1, 0
				for ; ; k, step = k+step, step+step/2+k%2 {
					f.fault("clear")
					f.fault("die", "name="+verb, fmt.Sprintf("skip=%d", k), "node=b")
					j := f.start(spec{nodes: []string{"a", "b"}, args: []string{"--work", "sendrecv", "--max", "4K", "--factor", "8", "--iters", "2",
						"--early-orphans", fmt.Sprint(orphans), "--die-limit-ms", "5000"}}).wait()
					a, b := j.rank("a"), j.rank("b")
					if b.status == 0 {
						j.ok() // there are no more than k calls
						break
					}
					steps++
					if b.status != 128+9 || a.status != 1 && a.status != 0 {
						j.fatalf("%s %d: status %d on a, %d on b", verb, k, a.status, b.status)
					}
					at, _, remote := a.said(`ncclRemoteError \(6\)$`)
					// Between two operations of the plugin, or after the last one that it knows of: who will dial a listener is known when
					// it does.
					_, _, left := a.said(`rank 1 left the rendezvous$|rank 1: connect to it done, accept from it pending$`)
					switch {
					case a.status == 0: // it was over already
					case !remote && !left:
						j.errorf("%s %d: a was not told that its peer is lost", verb, k)
					case remote && at.Sub(b.ended) > soon:
						j.errorf("%s %d: a was told %v after b's death", verb, k, at.Sub(b.ended))
					case remote:
						told++
						slowest = max(slowest, at.Sub(b.ended))
					}
					j.clean(a)
					if t.Failed() {
						return
					}
				}
				t.Logf("killed at %d calls of %d; told %d times, after %v at most", steps, k, told, slowest)
				if numbers, _ := f.queuePairs("a"); len(numbers) > 0 {
					t.Errorf("queue pairs are left: %x", numbers)
				}
				if steps == 0 || told == 0 && verb != "alloc_pd" {
					t.Errorf("killed %d times and told %d times: nothing was tested", steps, told)
				}
			})
		}
	}
}

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
		{"tcp", "--seed 7 --orphans 1 --open-files " + manyFiles(t), true},
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
