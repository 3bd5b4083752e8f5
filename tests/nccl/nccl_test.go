package nccl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// patience is a hang guard, not a measure. A full run has no other that ends before.
var patience = map[bool]time.Duration{false: 5 * time.Minute, true: 30 * time.Minute}[full]

// grace is what ranks have to say why they fail too.
const grace = 5 * time.Second

// full is everything; without it a sample.
var full = require.IsFull()

// sampled ends a case that is not for a sample, or not of the version that one has: that which is always to be had.
func sampled(t *testing.T, v Version, yes bool) {
	t.Helper()
	if v.Name != Versions[0].Name || !yes {
		require.Full(t, "another case of the same test, with NCCL "+Versions[0].Name)
	}
}

// What is under test, and why there is nothing to test; nil when there is.
var (
	built  string
	unable error
)

func TestMain(m *testing.M) {
	built, unable = fabric.Build("nccl-test", "build", "fakeverbs")
	if unable != nil && !errors.Is(unable, fabric.ErrUnable) {
		fmt.Fprintln(os.Stderr, unable) // what cannot be built is broken, not missing
		os.Exit(1)
	}
	code := m.Run()
	if n := checked.Load(); n > 0 {
		fmt.Println("collectives checked:", n)
	}
	os.Exit(code)
}

// checked counts the collectives that every rank has compared.
var checked atomic.Int64

func plugin() string { return filepath.Join(built, "libnccl-net-mesh.so") }

// programs are the rank programs, by version.
var programs sync.Map

// program is the rank program of a version. The test is skipped without.
func program(t *testing.T, v Version) string {
	t.Helper()
	if unable != nil {
		require.Skip(t, require.Netns, unable.Error())
	}
	type built struct {
		rank string
		err  error
	}
	once, _ := programs.LoadOrStore(v.Name, sync.OnceValue(func() built {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		rank, err := Program(ctx, v, filepath.Join(fabric.Root(), "build/nccl-test"))
		return built{rank, err}
	}))
	b := once.(func() built)()
	switch {
	case errors.Is(b.err, ErrUnable) && v.sha256 == nil:
		t.Skipf("skipped: %v", b.err) // what is not released may be gone tomorrow
	case errors.Is(b.err, ErrUnable):
		require.Skip(t, require.NCCL, b.err.Error())
	case b.err != nil:
		t.Fatal(b.err)
	}
	return b.rank
}

// up brings a topology up for as long as the test.
func up(t *testing.T, topology string) *fabric.Fabric {
	t.Helper()
	f, err := fabric.Up(fabric.Tools(built), topology)
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.Netns, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// run runs a job that must end well.
func run(t *testing.T, f *fabric.Fabric, j Job) []Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	j.Ended = func(r Result) {
		if r.Err != nil {
			time.AfterFunc(grace, cancel) // the others wait for it
		}
	}
	results, err := j.Run(ctx, f)
	if err := errors.Join(err, Failed(results)); err != nil {
		t.Fatal(err)
	}
	checked.Add(int64(Checked(results)))
	return results
}

// A choice is what NCCL is told to choose.
type choice struct{ name, algo, proto string }

var choices = []choice{
	{"ring simple", "Ring", "Simple"},
	{"ring LL", "Ring", "LL"},
	{"tree simple", "Tree,Ring", "Simple"},
	{"tree LL", "Tree,Ring", "LL"},
	{"own", "", "^LL128"},
}

// pat is forced where NCCL has it and it does the operation.
var pat = choice{"PAT", "allgather:pat;reducescatter:pat", "Simple"}

// session is steps under a choice, between a communicator's beginning and its end.
func (c choice) session(steps []string) []string {
	return slices.Concat([]string{"env NCCL_ALGO=" + c.algo, "env NCCL_PROTO=" + c.proto, "init"}, steps, []string{"destroy"})
}

// collectives checks every one with sizes from 1 element up.
func collectives(counts ...int) (steps []string) {
	for _, c := range []string{"allreduce", "allgather", "reducescatter", "broadcast", "reduce", "sendrecv", "alltoall", "broadcasts"} {
		for _, n := range counts {
			steps = append(steps, fmt.Sprintf("check %s f32 sum %d", c, n))
		}
	}
	return append(steps, "check allreduce f32 sum 5000 inplace", "check allgather i32 sum 5000 inplace", "check reducescatter u8 sum 5000 inplace",
		"check broadcast f64 sum 5000 inplace root=1", "check reduce i64 max 300 root=1")
}

// types checks every type of a version with every operation.
func types(v Version) (steps []string) {
	all := []string{"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"}
	if v.has8Bits() {
		all = append(all, "f8e4m3", "f8e5m2")
	}
	for _, t := range all {
		for _, op := range []string{"sum", "prod", "max", "min", "avg"} {
			steps = append(steps, fmt.Sprintf("check allreduce %s %s 777", t, op), fmt.Sprintf("check reducescatter %s %s 333", t, op))
		}
	}
	return steps
}

// largest are 64 MiB: of a rank, or together where every rank has a share for each.
func largest(ranks int) []string {
	const n = 16 << 20
	return []string{
		fmt.Sprintf("check allreduce f32 sum %d", n), fmt.Sprintf("check broadcast f32 sum %d", n), fmt.Sprintf("check reduce f32 sum %d", n),
		fmt.Sprintf("check sendrecv f32 sum %d", n), fmt.Sprintf("check allgather f32 sum %d", n/ranks),
		fmt.Sprintf("check reducescatter f32 sum %d", n/ranks), fmt.Sprintf("check alltoall f32 sum %d", n/ranks),
	}
}

func meshes() []struct {
	name  string
	mesh  fabric.Mesh
	lanes string // the kinds that a sample has
} {
	return []struct {
		name  string
		mesh  fabric.Mesh
		lanes string
	}{
		{"pair", fabric.Ring("node-a", "node-b"), ""}, // two cables
		{"triangle", fabric.Triangle(), "rdma tcp"},
		{"full mesh of four", fullMesh("node-a", "node-b", "node-c", "node-d"), ""},
	}
}

// fullMesh is a ring with its diagonals.
func fullMesh(nodes ...string) fabric.Mesh {
	m := fabric.Ring(nodes...)
	n := byte(200)
	for i := range nodes {
		for k := i + 2; k < len(nodes) && (i > 0 || k < len(nodes)-1); k++ {
			c := m.Cables[0]
			c.Net = netOf(n)
			n++
			for e, at := range []int{i, k} {
				c.Ends[e] = fabric.Port{Node: nodes[at], Iface: fmt.Sprintf("to%d", k+i-at), Device: fmt.Sprintf("rdma-to%d", k+i-at), Addr: fabric.Host(c.Net, e+1)}
			}
			m.Cables = append(m.Cables, c)
		}
	}
	return m
}

// Every collective, algorithm and protocol, through every kind of lane.
func TestCollectives(t *testing.T) {
	for _, v := range Versions {
		for _, m := range meshes() {
			for _, l := range AllLanes {
				t.Run(strings.Join([]string{v.Name, m.name, l.Name}, "/"), func(t *testing.T) {
					sampled(t, v, slices.Contains(strings.Fields(m.lanes), l.Name))
					rank := program(t, v)
					f := up(t, l.Mesh(m.mesh).Topology())
					var steps []string
					for i, c := range choices {
						switch {
						case full:
							steps = append(steps, c.session(slices.Concat(collectives(1, 2, 1000, 65537, 1<<20), types(v)))...)
						case (l.Name == "rdma") == (i%2 == 0): // Simple and what NCCL takes of itself over RDMA, LL over TCP
							steps = append(steps, c.session(collectives(1, 1000, 65537))...)
						}
					}
					run(t, f, l.Job(rank, plugin(), steps...))
				})
			}
		}
	}
}

// patSteps are what PAT does: from some bytes, many of which share a slot, to several
// loops of a chunk.
func patSteps(v Version, all bool) (steps []string) {
	kinds := []struct{ kind, counts, place string }{{"i8", "8", ""}, {"f32", "1003 262144", ""}, {"i32", "5 65537", " inplace"}}
	if all {
		kinds = append(kinds, []struct{ kind, counts, place string }{
			{"f64", "1 2 3 1000 8191 8192 8193 300000", ""}, {"u8", "1 7 513 16384 65536 262145 2097153", " inplace"},
		}...)
		for _, s := range types(v) {
			if strings.Contains(s, "reducescatter") && !strings.Contains(s, " avg ") { // PAT does not divide
				steps = append(steps, s)
			}
		}
	}
	for _, k := range kinds {
		for _, n := range strings.Fields(k.counts) {
			for _, c := range []string{"allgather", "reducescatter"} {
				steps = append(steps, fmt.Sprintf("check %s %s sum %s%s", c, k.kind, n, k.place))
			}
		}
	}
	return append(steps, "check reducescatter bf16 max 333", "check allreduce f32 sum 30011", "check broadcast f32 sum 30011", "check allgather f32 sum 999")
}

// PAT, in turn with rings on the same connections. On 13 nodes and more, chunks wait in
// slots behind others.
func TestPAT(t *testing.T) {
	require.Full(t, "tests/nccl TestCollectives")
	tests := []struct{ nodes, lanes string }{ // all when empty
		{"ab", ""}, {"abc", ""}, {"abcd", ""}, {"abcde", ""}, {"abcdefg", ""}, {"abcdefgh", ""}, {"abcdefghijklm", "sockets"},
	}
	for _, v := range Versions {
		if !v.hasPAT() {
			continue
		}
		for _, tt := range tests {
			for _, l := range AllLanes {
				if tt.lanes != "" && l.Name != tt.lanes {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%s", v.Name, len(tt.nodes), l.Name), func(t *testing.T) {
					rank := program(t, v)
					f := up(t, l.Mesh(fullMesh(strings.Split(tt.nodes, "")...)).Topology())
					j := l.Job(rank, plugin(), pat.session(patSteps(v, tt.lanes == ""))...)
					j.Env = append(slices.Clone(j.Env), "SHOW_KERNELS=1")
					for _, r := range run(t, f, j) {
						for _, want := range []string{"kernel AllGather PAT Simple", "kernel ReduceScatter PAT Simple"} {
							if !strings.Contains(r.Output, want) {
								t.Errorf("%s does not say %q", r.Node, want)
							}
						}
					}
				})
			}
		}
	}
}

func netOf(n byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, n, 0}), 24)
}
