package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// A process that is stopped for a while as it sets connections up is waited for: its cables are as good as before.
func TestStopped(t *testing.T) {
	for i, proof := range []int{0, 2, 4, 7, 10, 15, 12, 9} { // at which it stops, to itself or to the other: which comes when is chance; 15 is between two lanes
		long := []time.Duration{1300 * time.Millisecond, 3 * time.Second}[i%2]
		t.Run(fmt.Sprintf("%v at proof %d", long, proof), func(t *testing.T) {
			if i >= 3 {
				require.Full(t, "the same test at three other proofs")
			}
			t.Parallel()
			f := newFabric(t, twins)
			f.fault("halt", "node=b", "name=post_send", fmt.Sprintf("skip=%d", proof))
			j := f.start(spec{args: []string{"--work", "sendrecv", "--max", "64K", "--iters", "1"}})
			j.stopped("b")
			time.Sleep(long)
			if err := j.rank("b").cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			j.ok()
			for _, r := range j.ranks {
				if n := r.count(`conn \d+: lane 0 .*, lane 1`); n != 4 { // to and from itself and the other: no lane is lost to this
					j.errorf("node %s has %d connections of two lanes, want 4", r.node, n)
				}
			}
		})
	}
}

// stopped waits until the rank on a node has been stopped.
func (j *job) stopped(node string) {
	j.f.t.Helper()
	r := j.rank(node)
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
		if err != nil {
			err = errors.Join(err, errors.New("the rank has ended"))
		} else if _, after, ok := strings.Cut(string(stat), ") "); ok && after[0] == 'T' {
			return
		}
		if err != nil || time.Now().After(deadline) {
			j.fatalf("node %s was not stopped: %v", node, err)
		}
	}
}

// Many more ranks than processors connect to each other at once: nobody takes a turn that came late for a broken cable.
func TestCrowd(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestSlowVerbs")
	ranks := crowd
	if n, err := strconv.Atoi(os.Getenv("MESH_TEST_CROWD")); err == nil {
		ranks = n
	}
	f := newFabric(t, twins)
	var nodes []string
	for i := range ranks {
		nodes = append(nodes, f.Nodes[i%len(f.Nodes)])
	}
	j := f.start(spec{nodes: nodes, args: []string{"--work", "alltoall", "--min", "64", "--max", "64", "--iters", "1", "--warmup", "0", "--chunk", "4K", "--depth", "2", "--timeout", "300"}}).ok()
	for i, r := range j.ranks {
		if n := r.count(`not used`); n > 0 {
			j.errorf("rank %d lost %d lanes", i, n)
		}
	}
}

const crowd = 8 // 40 is the measure, with a minute of two idle processors: MESH_TEST_CROWD=40

// In a running job nobody takes a process that was stopped, or that has its turn on a processor seldom, for a broken cable.
func TestStoppedInTraffic(t *testing.T) {
	rdma, both := over{two, qps2}, over{fourTCP, []string{auto}}
	for _, o := range []over{rdma, both} {
		t.Run("stopped, over "+o.String(), func(t *testing.T) {
			if o.plain != "" {
				require.Full(t, "the same test over RDMA and tests/sim/mesh TestSlowVerbs")
			}
			t.Parallel()
			f := newFabric(t, o.topology())
			j := f.start(spec{env: o.env, args: f.endless("--work soak --max 1M --comms 2 --timeout 300")})
			long := 1500 * time.Millisecond
			if full {
				long = time.Minute
			}
			for _, node := range []string{"a", "b", "a"} {
				j.moves()
				j.signal(node, syscall.SIGSTOP)
				time.Sleep(long)
				j.signal(node, syscall.SIGCONT)
			}
			j.moves()
			j.enough().ok()
			j.keep()
		})
		t.Run("on one processor, over "+o.String(), func(t *testing.T) {
			require.Full(t, "the same test of a process that is stopped")
			t.Parallel()
			f := newFabric(t, o.topology())
			j := f.start(spec{env: o.env, args: f.endless("--work soak --max 1M --comms 2")})
			var one unix.CPUSet
			one.Set(0)
			for _, r := range j.ranks {
				threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", r.cmd.Process.Pid))
				for _, d := range threads {
					if id, e := strconv.Atoi(d.Name()); e == nil {
						err = errors.Join(err, unix.SchedSetaffinity(id, &one))
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			j.suffer("moves", "moves", "moves")
			j.enough().ok()
			j.keep()
		})
	}
}

// keep fails the test if a lane was lost.
func (j *job) keep() {
	j.f.t.Helper()
	if n := j.lost(); n > 0 {
		j.errorf("%d lanes were lost", n)
	}
}
