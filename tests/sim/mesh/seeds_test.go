package mesh_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os/exec"
	"testing"
)

var (
	first = flag.Uint64("seed", 0, "first seed of the tests that take many; 0: one that the commit decides")
	seeds = flag.Int("seeds", 20, "number of seeds of the tests that take many")
)

// firstSeed is where the seeds begin. Without the flag a commit decides, so that each has seeds of its own and is always
// green or always red; outside a repository it is 1.
func firstSeed() uint64 {
	if *first != 0 {
		return *first
	}
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return 1
	}
	h := fnv.New64a()
	_, _ = h.Write(commit)
	return 1 + h.Sum64()%1_000_000
}

// each runs a test of a seed for each seed.
func each(t *testing.T, f func(t *testing.T, seed uint64)) {
	for seed := firstSeed(); seed < firstSeed()+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { f(t, seed) })
	}
}
