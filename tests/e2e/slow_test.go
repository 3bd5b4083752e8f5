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
)

// A process that is stopped for a while as it sets connections up is waited for: its cables are as good as before.
func TestStopped(t *testing.T) {
	for i, proof := range []int{0, 2, 4, 7, 10, 12} { // at which it stops, to itself or to the other: which comes when is chance
		long := []time.Duration{1300 * time.Millisecond, 3 * time.Second}[i%2]
		t.Run(fmt.Sprintf("%v at proof %d", long, proof), func(t *testing.T) {
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
