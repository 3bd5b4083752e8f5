package nccl

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
)

// each runs f for every version over both kinds of the plugin's lanes; as a sample,
// each version over one.
func each(t *testing.T, f func(t *testing.T, rank string, l Lanes)) {
	for i, v := range Versions {
		for k, l := range AllLanes[:2] {
			if !full && i == k {
				continue
			}
			t.Run(v.Name+"/"+l.Name, func(t *testing.T) { f(t, program(t, v), l) })
		}
	}
}

func TestTwoCommunicators(t *testing.T) {
	each(t, func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), l.Job(rank, plugin(), "two 12"))
	})
}

func TestSplit(t *testing.T) {
	each(t, func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), l.Job(rank, plugin(), "init", "split", "split share", "destroy"))
	})
}

// A communicator that is aborted with collectives in flight, and one after it.
func TestAbort(t *testing.T) {
	each(t, func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), l.Job(rank, plugin(), "init", "abort 0.05", "init", "check allreduce f32 sum 1000", "destroy"))
	})
}

// What a communicator holds is given back when it ends.
func TestCycles(t *testing.T) {
	n := "8"
	if full {
		n = "20"
	}
	each(t, func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Ring("node-a", "node-b")).Topology()), l.Job(rank, plugin(), "cycles "+n))
	})
}

// NCCL reads the PCI tree of a GB10 and finds one network device beside its GPU.
func TestGB10(t *testing.T) {
	for _, v := range Versions {
		t.Run(v.Name, func(t *testing.T) {
			rank := program(t, v)
			f := up(t, GB10("node-a", "node-b"))
			if err := AddGPUs(f); err != nil {
				t.Fatal(err)
			}
			j := AllLanes[0].Job(rank, plugin(), "init", "check allreduce f32 sum 1048576", "check alltoall f32 sum 70000", "destroy")
			j.Env = append(j.Env, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET")
			for _, r := range run(t, f, j) {
				for _, want := range []string{"NET/Mesh : port 1: roceP2p1s0f", "GPU/", "NIC/", "via NET/Mesh/0"} {
					if !strings.Contains(r.Output, want) {
						t.Errorf("%s does not say %q:\n%s", r.Node, want, r.Output)
					}
				}
			}
		})
	}
}

// doomed runs a job that must end with ncclRemoteError on all ranks but those that
// are lost.
func doomed(t *testing.T, f *fabric.Fabric, j Job, lost ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results, err := j.Run(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !slices.Contains(lost, r.Node) && (r.Err != nil || !strings.Contains(r.Output, "error 6 after")) {
			t.Errorf("%s: %v, want ncclRemoteError\n%s", r.Node, r.Err, r.Output)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(r.Output) {
			if _, said, ours := strings.Cut(line, "NET/Mesh : "); ours {
				if seen[said] {
					t.Errorf("%s says it twice: %s", r.Node, said)
					break
				}
				seen[said] = true
			}
		}
	}
}

// A rank that is killed is an error for the others.
func TestKilledRank(t *testing.T) {
	each(t, func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		doomed(t, f, l.Job(rank, plugin(), "init", "killed 2 0.2", "until-error"), "node-c")
	})
}

// A rank that stands still, in a debugger say, is waited for: longer than the plugin
// would wait for a node that is silent.
func TestPausedRank(t *testing.T) {
	each(t, func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		j := l.Job(rank, plugin(), append(append([]string{"init", "paused 2 3"}, collectives(1000, 65537)...), "destroy")...)
		j.Env = append(j.Env, "NCCL_MESH_LANE_WAIT=1")
		run(t, f, j)
	})
}

// The pretend GPU, the kernels and the rank program under AddressSanitizer and
// UBSan, over NCCL's own sockets.
func TestSanitized(t *testing.T) {
	for i, v := range Versions {
		if !full && i < len(Versions)-1 {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			rank, err := Build(filepath.Join(Cache(), filepath.Base(filepath.Dir(program(t, v)))), filepath.Join(built, "sanitized"),
				"CFLAGS=-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined")
			if err != nil {
				t.Fatal(err)
			}
			var steps []string
			for _, c := range choices[:4] {
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
