package nccl

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// each runs f for every version over both kinds of the plugin's lanes. A sample has lanes of the given kind.
func each(t *testing.T, sample string, f func(t *testing.T, rank string, l Lanes)) {
	t.Helper()
	for _, v := range Versions {
		for _, l := range AllLanes[:2] {
			t.Run(v.Name+"/"+l.Name, func(t *testing.T) {
				sampled(t, v, l.Name == sample)
				f(t, program(t, v), l)
			})
		}
	}
}

// versionOf is the version that a rank program was linked to.
func versionOf(rank string) Version {
	return Versions[slices.IndexFunc(Versions, func(v Version) bool { return filepath.Base(filepath.Dir(rank)) == v.Name })]
}

func TestSplit(t *testing.T) {
	each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), l.Job(rank, plugin(), "init", "split", "split share", "destroy"))
	})
}

// A communicator that is aborted with collectives in flight, and one after it.
func TestAbort(t *testing.T) {
	each(t, "tcp", func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), l.Job(rank, plugin(), "init", "abort 0.05", "init", "check allreduce f32 sum 1000", "destroy"))
	})
}

// What a communicator holds is given back when it ends.
func TestCycles(t *testing.T) {
	require.Full(t, "tests/e2e TestCycles")
	each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
		j := l.Job(rank, plugin(), "cycles 20 0.6")
		j.Env = append(slices.Clone(j.Env), "MALLOC_ARENA_MAX=1") // else NCCL's threads fill one after another of the C library's
		run(t, up(t, l.Mesh(fabric.Ring("node-a", "node-b")).Topology()), j)
	})
}

// ends is what becomes of a rank, in what it prints: ncclRemoteError, and the
// communicator is aborted.
const ends = "error 6 after"

// fated runs a job of which all ranks must end with the given fate but those that are
// lost. When all have said that they are going, fault happens.
func fated(t *testing.T, f *fabric.Fabric, j Job, fate string, fault func() error, lost ...string) []Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	happened := make(chan error, 1)
	going, hear := 0, j.Line
	j.Line = func(node, line string) {
		if hear != nil {
			hear(node, line)
		}
		if line != "going" {
			return
		}
		if going++; going == len(f.Nodes) && fault != nil {
			go func() { happened <- fault() }()
		}
	}
	results, err := j.Run(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case fault == nil:
	case going < len(f.Nodes):
		t.Error("not all ranks got as far as the fault")
	default: // it may not be through with all that it does
		if err := <-happened; err != nil {
			t.Error(err)
		}
	}
	for _, r := range results {
		if !slices.Contains(lost, r.Node) && (r.Err != nil || !strings.Contains(r.Output, fate)) {
			t.Errorf("%s: %v, want %q\n%s", r.Node, r.Err, fate, r.Output)
		}
	}
	sayOnce(t, results)
	return results
}

// sayOnce holds that the plugin tells a user nothing twice.
func sayOnce(t *testing.T, results []Result) {
	t.Helper()
	for _, r := range results {
		seen := map[string]bool{}
		for _, said := range r.said() {
			if seen[said] {
				t.Errorf("%s says it twice: %s", r.Node, said)
			}
			seen[said] = true
		}
	}
}

// said is what the plugin has told a rank's user.
func (r Result) said() (lines []string) {
	for line := range strings.Lines(r.Output) {
		if _, said, ours := strings.Cut(strings.TrimSuffix(line, "\n"), "NCCL WARN NET/Mesh : "); ours {
			lines = append(lines, said)
		}
	}
	return lines
}

// A rank that is killed is an error for the others.
func TestKilledRank(t *testing.T) {
	require.Full(t, "TestAbort, tests/e2e TestKilledInTransfer and tests/sim/mesh TestProcessDies")
	each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		fated(t, f, l.Job(rank, plugin(), "init", "killed 2 0.2", "until-error"), ends, nil, "node-c")
	})
}

// Sizes of 64 MiB.
func TestLargest(t *testing.T) {
	require.Full(t, "tests/nccl TestCollectives")
	each(t, "", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		run(t, f, l.Job(rank, plugin(), append(append([]string{"init"}, largest(3)...), "destroy")...))
	})
}

// Every type with every operation.
func TestTypes(t *testing.T) {
	require.Full(t, "tests/nccl TestCollectives, of one type")
	each(t, "", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Ring("node-a", "node-b")).Topology())
		run(t, f, l.Job(rank, plugin(), choices[0].session(types(versionOf(rank)))...))
	})
}

// Every table that a version of NCCL reads, in use under it.
func TestTables(t *testing.T) {
	require.Full(t, "tests/netdriver TestEverything and tests/e2e TestVersions")
	for _, v := range Versions {
		for i, api := range v.APIs {
			l := AllLanes[i%2]
			t.Run(fmt.Sprintf("%s/v%d/%s", v.Name, api, l.Name), func(t *testing.T) {
				rank := program(t, v)
				f := up(t, l.Mesh(fabric.Triangle()).Topology())
				j := l.Job(rank, filepath.Join(filepath.Dir(rank), fmt.Sprintf("shim-v%d.so", api)),
					append(append([]string{"init"}, collectives(1000, 65537)...), "destroy", "init", "check allreduce f32 sum 1000", "destroy")...)
				j.Env = append(j.Env, "NCCL_SHIM_PLUGIN="+plugin(), "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET")
				for _, r := range run(t, f, j) {
					if want := fmt.Sprintf("(v%d)", api); v.Name > "2.27" && !strings.Contains(r.Output, "Loaded net plugin Mesh "+want) {
						t.Errorf("%s does not use %s:\n%s", r.Node, want, r.Output)
					}
				}
			})
		}
	}
}

// The pretend GPU, the kernels and the rank program under AddressSanitizer and
// UBSan, over NCCL's own sockets.
func TestSanitized(t *testing.T) {
	require.Full(t, "tests/nccl TestCollectives, without sanitizers")
	for _, v := range Versions {
		t.Run(v.Name, func(t *testing.T) {
			rank, err := Build(filepath.Join(Cache(), filepath.Base(filepath.Dir(program(t, v)))), filepath.Join(built, "sanitized"),
				"CFLAGS=-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined")
			if err != nil {
				t.Fatal(err)
			}
			var steps []string
			forced := choices[:4]
			if v.hasPAT() {
				forced = append(slices.Clone(forced), pat)
			}
			for _, c := range forced {
				steps = append(steps, c.session(append(collectives(1, 1003), "check allreduce f16 avg 77", "check allreduce i8 prod 77", "split"))...)
			}
			l := AllLanes[2]
			j := l.Job(rank, "", steps...)
			// NCCL's own leaks are not ours; under the sanitizer dlopen knows no run path.
			j.Env = append(j.Env, "ASAN_OPTIONS=detect_leaks=0", "LD_LIBRARY_PATH="+filepath.Dir(rank))
			run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), j)
		})
	}
}

// The plugin is found in every way that NCCL documents.
func TestPluginNames(t *testing.T) {
	tests := []struct {
		name, plugin string
		since        string // version of NCCL
	}{
		{"a path", plugin(), ""},
		{"a name", "mesh", ""},
		{"a file's name", "libnccl-net-mesh.so", ""},
		{"unset, and the link beside it", "", ""}, // set to nothing is something else from 2.27 on
		{"the second of a list", "nonesuch," + plugin(), "2.27"},
	}
	for _, v := range Versions {
		for _, tt := range tests {
			if v.Name < tt.since {
				continue
			}
			t.Run(v.Name+"/"+tt.name, func(t *testing.T) {
				sampled(t, v, tt.plugin == "mesh")
				l := AllLanes[1]
				j := l.Job(program(t, v), tt.plugin, "env NCCL_NET=mesh", "env NCCL_NET_PLUGIN="+tt.plugin, "init", "check allreduce f32 sum 100", "destroy", "init", "check allreduce f32 sum 100", "destroy")
				j.Env = append(j.Env, "LD_LIBRARY_PATH="+built)
				run(t, up(t, l.Mesh(fabric.Ring("node-a", "node-b")).Topology()), j)
			})
		}
	}
}

// NCCL 2.29 makes one operation of a group of broadcasts and gives it as many
// channels as a tuner says, which may be more than there are.
func TestLargeBroadcasts(t *testing.T) {
	require.Full(t, "tests/nccl TestCollectives")
	for _, v := range Versions {
		for _, l := range AllLanes {
			t.Run(v.Name+"/"+l.Name, func(t *testing.T) {
				rank := program(t, v)
				f := up(t, l.Mesh(fabric.Triangle()).Topology())
				run(t, f, l.Job(rank, plugin(), "init", "check broadcasts f32 sum 1048576", "destroy"))
			})
		}
	}
}
