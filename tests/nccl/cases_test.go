package nccl

import (
	"context"
	"errors"
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

func TestTwoCommunicators(t *testing.T) {
	require.Full(t, "tests/nccl TestSplit")
	each(t, "", func(t *testing.T, rank string, l Lanes) {
		run(t, up(t, l.Mesh(fabric.Triangle()).Topology()), l.Job(rank, plugin(), "two 12"))
	})
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

// NCCL reads the PCI tree of a GB10 and finds one network device beside its GPU.
func TestGB10(t *testing.T) {
	require.Full(t, "tests/nccl TestRails, on the same fabric")
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

// failing runs a job that NCCL cannot begin.
func failing(t *testing.T, f *fabric.Fabric, j Job) []Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results, err := j.Run(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v, %v, want an error of NCCL's:\n%s", r.Node, r.Err, ctx.Err(), r.Output)
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

// A rank that stands still, in a debugger say, is waited for: longer than the plugin
// would wait for a node that is silent.
func TestPausedRank(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestProcessIsStopped")
	each(t, "", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		j := l.Job(rank, plugin(), append(append([]string{"init", "paused 2 3"}, collectives(1000, 65537)...), "destroy")...)
		j.Env = append(j.Env, "NCCL_MESH_LANE_WAIT=1")
		run(t, f, j)
	})
}

// A rank that does not come is waited for by NCCL; those who give up can begin anew.
func TestMissingRank(t *testing.T) {
	require.Full(t, "transport TestPeerNeverConnects")
	each(t, "tcp", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		run(t, f, l.Job(rank, plugin(), append(append([]string{"missing 2 1", "init"}, collectives(1000)...), "destroy")...))
	})
}

// afterCable is what becomes of ranks two of which lose their only cable.
const afterCable = ends

// A cableFault makes a cable useless, in the way of each kind of lanes.
type cableFault struct {
	name      string
	rdma, tcp func(f *fabric.Fabric, c fabric.Cable) error
}

// cableFaults are a cable that is pulled, and one on which nothing passes any more.
var cableFaults = []cableFault{
	{"pulled",
		func(f *fabric.Fabric, c fabric.Cable) error {
			_, err := f.Fault("unplug", c.Ends[0].Node+":"+c.Ends[0].Device)
			return err
		},
		func(f *fabric.Fabric, c fabric.Cable) error {
			return onEnds(f, c, func(own, _ fabric.Port) []string { return []string{"link", "set", own.Iface, "down"} })
		}},
	{"stalled",
		func(f *fabric.Fabric, c fabric.Cable) error {
			_, err := f.Fault("stall", "port="+c.Ends[0].Node+":"+c.Ends[0].Device)
			return err
		},
		func(f *fabric.Fabric, c fabric.Cable) error { // what is sent is nobody's
			return onEnds(f, c, func(own, peer fabric.Port) []string {
				return []string{"neigh", "replace", peer.Addr.String(), "lladdr", "02:00:00:00:00:99", "dev", own.Iface, "nud", "permanent"}
			})
		}},
}

// putBack puts a cable back that was pulled.
func putBack(l Lanes, f *fabric.Fabric, c fabric.Cable) error {
	if l.Name == "tcp" {
		return onEnds(f, c, func(own, _ fabric.Port) []string { return []string{"link", "set", own.Iface, "up"} })
	}
	_, err := f.Fault("plug", c.Ends[0].Node+":"+c.Ends[0].Device)
	return err
}

// happen has it happen to a cable of such lanes.
func (c cableFault) happen(l Lanes, f *fabric.Fabric, on fabric.Cable) error {
	if l.Name == "tcp" {
		return c.tcp(f, on)
	}
	return c.rdma(f, on)
}

// A cable that is lost under NCCL, where nodes do not carry for each other: not a wrong
// byte, no hang, and the two nodes at its ends name it.
func TestCableLost(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestProcessDies and tests/nccl TestAbort")
	each(t, "", func(t *testing.T, rank string, l Lanes) {
		for _, fault := range cableFaults {
			t.Run(fault.name, func(t *testing.T) {
				m := fabric.Triangle()
				f := up(t, l.Mesh(m).Topology())
				c := m.Cables[0]
				j := l.Job(rank, plugin(), "init", "until-error 20")
				j.Env = append(slices.Clone(j.Env), "NCCL_MESH_RELAY=0", "NCCL_MESH_IFNAME=next,prev", "NCCL_MESH_LANE_WAIT=1")
				for _, r := range fated(t, f, j, afterCable, func() error { return fault.happen(l, f, c) }) {
					t.Logf("%s:\n%s", r.Node, strings.Join(r.said(), "\n"))
					for _, end := range c.Ends {
						if r.Node == end.Node && !strings.Contains(strings.Join(r.said(), "\n"), end.Iface) {
							t.Errorf("%s does not name %s:\n%s", r.Node, end.Iface, r.Output)
						}
					}
				}
			})
		}
	})
}

// Of four cables between two nodes all but one are lost under NCCL, one after another:
// its all-reduces go on and are right, and both nodes name each cable.
func TestCablesLost(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail and tests/nccl TestCablePutBack")
	each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
		m := fabric.Mesh{Nodes: []string{"node-a", "node-b"}}
		for i := range 4 {
			c := fabric.Cable{Net: netOf(byte(100 + i)), MTU: 9000}
			for e, node := range m.Nodes {
				name := fmt.Sprintf("cable%d", i)
				c.Ends[e] = fabric.Port{Node: node, Iface: name, Device: "rdma-" + name, Addr: fabric.Host(c.Net, e+1)}
			}
			m.Cables = append(m.Cables, c)
		}
		f := up(t, l.Mesh(m).Topology())
		lost := []fabric.Cable{m.Cables[1], m.Cables[3], m.Cables[0]}
		j := l.Job(rank, plugin(), "init", "until-error 3", "destroy")
		j.Env = append(j.Env, "NCCL_MESH_LANE_WAIT=1")
		for _, r := range fated(t, f, j, "went on: ", func() error {
			var errs []error
			for i, c := range lost {
				errs = append(errs, cableFaults[i%2].happen(l, f, c))
			}
			return errors.Join(errs...)
		}) {
			said := strings.Join(r.said(), "\n")
			t.Logf("%s:\n%s", r.Node, said)
			for _, c := range lost {
				if want := c.Ends[0].Iface; !strings.Contains(said, want) {
					t.Errorf("%s does not name %s:\n%s", r.Node, want, r.Output)
				}
			}
			if want := "its traffic goes over the 1 lane left"; !strings.Contains(said, want) {
				t.Errorf("%s does not say %q:\n%s", r.Node, want, r.Output)
			}
		}
	})
}

// onEnds runs ip at both ends of a cable.
func onEnds(f *fabric.Fabric, c fabric.Cable, args func(own, peer fabric.Port) []string) error {
	var errs []error
	for i, own := range c.Ends {
		cmd := f.Command(context.Background(), own.Node, "ip", args(own, c.Ends[1-i])...)
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w: %s", cmd, err, out))
		}
	}
	return errors.Join(errs...)
}

// A ring without diagonals, whose nodes do not carry for each other. Nodes that share no
// cable reach each other over the management network, of which each of both is told in one line; NCCL's rings need
// none of that when the ranks are in the order of the cables. With RDMA only, NCCL's
// start ends in an error that names two such nodes, in a line.
func TestRingOfFour(t *testing.T) {
	require.Full(t, "tests/nccl TestRings and transport/path TestWhyNoPath")
	across := map[string]string{"node-a": "node-c", "node-b": "node-d", "node-c": "node-a", "node-d": "node-b"}
	each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Ring("node-a", "node-b", "node-c", "node-d")).Topology())
		j := l.Job(rank, plugin(), choices[0].session(append(collectives(1000), "check allreduce f32 sum 262144"))...)
		j.Env = append(slices.Clone(j.Env), "NCCL_MESH_RELAY=0", "NCCL_MESH_TRANSPORT=auto")
		for _, r := range run(t, f, j) {
			said := r.said()
			if l.Name == "tcp" && len(said) > 0 {
				t.Errorf("%s says that TCP is used where there is nothing else:\n%s", r.Node, strings.Join(said, "\n"))
			}
			if want := r.Node + " and " + across[r.Node] + " talk over TCP"; l.Name == "rdma" && (len(said) != 1 || !strings.Contains(said[0], want)) {
				t.Errorf("%s does not say %q, and only that:\n%s", r.Node, want, strings.Join(said, "\n"))
			}
		}
		if l.Name != "rdma" {
			return
		}
		j = l.Job(rank, plugin(), "init")
		j.Env = append(slices.Clone(j.Env), "NCCL_MESH_RELAY=0")
		explained := false
		for _, r := range failing(t, f, j) {
			for _, said := range r.said() {
				if strings.HasPrefix(said, "...") {
					t.Errorf("%s needs more than a line: %s", r.Node, said)
				}
				explained = explained || strings.Contains(said, "no path between "+r.Node+" and "+across[r.Node])
			}
		}
		if !explained {
			t.Error("no node says that there is no path to the one across")
		}
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
