package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSweepTable(t *testing.T) {
	m := machine{Time: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), Runs: 2, Load: "0.10"}
	if got := sweepTable(m, []result{{Name: "latency-8B"}}, 8); got != "" {
		t.Errorf("nothing was swept, and the table is %q", got)
	}
	figures := []result{
		{Name: "tuner-tree-2x512KiB-2048KiB", Value: 900, Runs: []pair{{Value: 1000}, {Value: 800}}},
		{Name: "tuner-allreduce-1x128KiB-256KiB", Value: 12.4},
	}
	_, got, _ := strings.Cut(sweepTable(m, figures, 6980), "\n")
	want := "lane 6980\nhop 3\nAllReduce Ring 1 131072 262144 12\nAllReduce Tree 2 524288 2097152 800\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
