package e2e

import (
	"fmt"
	"testing"
)

// What a process may hold once 250 connections have come and gone, 1,500 as full measure, and it has been idle for five seconds.
const (
	stormKiB     = 46 << 10 // more than before
	stormThreads = 64       // of the whole process
)

// collection is what Go's runtime says of one under GODEBUG=gctrace=1.
const collection = `^gc \d+ @.* P( \(forced\))?$`

func TestStorm(t *testing.T) {
	connections := "250"
	if full {
		connections = "1500"
	}
	t.Parallel()
	f := newFabric(t, twins)
	j := f.start(spec{env: []string{"GODEBUG=gctrace=1"}, args: []string{"--work", "storm", "--connections", connections, "--duration", "5", "--timeout", "300"}}).ok()
	for _, node := range f.Nodes {
		line := j.await(node, `storm: `)
		var long, together, kib, most, threads int
		var n int
		if _, err := fmt.Sscanf(line[len("netdriver: rank 0: "):], "storm: %d s after %d connections, %d at a time, memory has grown by %d KiB, at most by %d, and there are %d threads",
			&long, &n, &together, &kib, &most, &threads); err != nil {
			j.fatalf("%q: %v", line, err)
		}
		t.Log(line)
		j.must(node, collection)
		if kib > stormKiB || threads > stormThreads {
			t.Errorf("node %s: %s; want at most %d KiB and %d threads", node, line, stormKiB, stormThreads)
		}
	}
}

// Beside traffic the garbage collector does not run, though set-ups have left garbage behind. Between those and the first message it may,
// where the processes wait for each other.
func TestNoCollectionBesideTraffic(t *testing.T) {
	t.Parallel()
	f := newFabric(t, twins)
	j := f.start(spec{env: []string{"GODEBUG=gctrace=1"}, args: []string{"--work", "soak", "--max", "64K", "--comms", "2", "--duration", "3", "--progress", "1", "--reopen", "1000000"}}).ok()
	moved, _, ok := j.ranks[0].said(progress)
	if !ok {
		j.fatalf("nothing was said of traffic")
	}
	for _, r := range j.ranks {
		closed, _, ok := r.said(`conn \d+: closed after`)
		if !ok {
			j.fatalf("node %s closed nothing", r.node)
		}
		for _, l := range r.linesOf(collection) {
			if l.at.After(moved) && l.at.Before(closed) {
				j.errorf("node %s: beside traffic: %s", r.node, l.text)
			}
		}
	}
}
