package rules

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"

	"github.com/google/go-cmp/cmp"
)

const library = "libnccl-net-mesh.so"

// A target is a machine that the plugin is built for.
type target struct {
	name    string
	goal    string // of the Makefile
	file    string // below the build directory
	machine elf.Machine
	cc      string
	run     []string // runs a program of the target; none on this machine itself
}

var targets = []target{
	{"native", "build", library, nativeMachine, "gcc", nil},
	{"arm64", "arm64", "arm64/" + library, elf.EM_AARCH64, "aarch64-linux-gnu-gcc",
		[]string{"qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"}},
}

var built = struct {
	sync.Mutex
	dir  string
	done map[string]error
}{done: map[string]error{}}

// build makes the library with the project's own Makefile, once.
func (g target) build(t *testing.T) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	err, done := built.done[g.goal]
	if !done {
		built.dir, err = fabric.Build("rules", g.goal)
		built.done[g.goal] = err
	}
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.CC, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(built.dir, g.file)
}

func eachTarget(t *testing.T, f func(t *testing.T, g target)) {
	for _, g := range targets {
		t.Run(g.name, func(t *testing.T) { f(t, g) })
	}
}

func open(t *testing.T, g target) *elf.File {
	t.Helper()
	f, err := elf.Open(g.build(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLibraryExportsTheVtables(t *testing.T) {
	eachTarget(t, func(t *testing.T, g target) {
		f := open(t, g)
		if f.Machine != g.machine {
			t.Errorf("machine %v, want %v", f.Machine, g.machine)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, s := range symbols {
			if elf.ST_BIND(s.Info) == elf.STB_LOCAL {
				continue
			}
			if s.Section == elf.SHN_UNDEF {
				if strings.HasPrefix(s.Name, "ibv_") || strings.HasPrefix(s.Name, "nccl") {
					t.Errorf("undefined symbol %s: it must be found at run time", s.Name)
				}
				continue
			}
			if elf.ST_TYPE(s.Info) != elf.STT_OBJECT {
				t.Errorf("%s is a %v", s.Name, elf.ST_TYPE(s.Info))
			}
			got[s.Name] = s.Size / 8
		}
		// The number of pointers in each vtable.
		want := map[string]uint64{
			"ncclNetPlugin_v5": 16, "ncclNetPlugin_v6": 17, "ncclNetPlugin_v7": 19, "ncclNetPlugin_v8": 19,
			"ncclNetPlugin_v9": 20, "ncclNetPlugin_v10": 20, "ncclNetPlugin_v11": 22, "ncclNetPlugin_v12": 22,
			"ncclRmaPlugin_v13": 21, "ncclRmaPlugin_v14": 21, "ncclRmaPlugin_v15": 21,
			"ncclTunerPlugin_v2": 4, "ncclTunerPlugin_v3": 4, "ncclTunerPlugin_v4": 4, "ncclTunerPlugin_v5": 4,
			"ncclTunerPlugin_v6": 5,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("exported (-want +got):\n%s", diff)
		}
	})
}

func TestLibraryNeedsLittle(t *testing.T) {
	allowed := []string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
	eachTarget(t, func(t *testing.T, g target) {
		f := open(t, g)
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, lib := range needed {
			if !slices.Contains(allowed, lib) {
				t.Errorf("needs %s; the library has to load where only the C library is", lib)
			}
		}
		imported, err := f.ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range imported {
			if v, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && newerThan(t, v, 2, 34) {
				t.Errorf("needs %s of glibc %s; 2.34 is what Ubuntu 22.04 and Red Hat 9 have", s.Name, v)
			}
		}
		newest := slices.ContainsFunc(imported, func(s elf.ImportedSymbol) bool { return s.Version == "GLIBC_2.34" })
		readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(string(readme), "To run: glibc 2.34 ("); says != newest {
			t.Errorf("the library needs glibc 2.34: %v; the README says so: %v", newest, says)
		}
		flags, err := f.DynValue(elf.DT_FLAGS_1)
		if err != nil || len(flags) != 1 || elf.DynFlag1(flags[0])&elf.DF_1_NODELETE == 0 {
			t.Errorf("DT_FLAGS_1 %v, %v: NODELETE is not set, and Go cannot be unloaded", flags, err)
		}
		soname, err := f.DynString(elf.DT_SONAME)
		if diff := cmp.Diff([]string{library}, soname); diff != "" || err != nil {
			t.Errorf("soname (-want +got):\n%s%v", diff, err)
		}
	})
}

// newerThan compares versions such as 2.3.2 by their first two numbers.
func newerThan(t *testing.T, version string, major, minor int) bool {
	t.Helper()
	parts := strings.SplitN(version, ".", 3)
	a, err := strconv.Atoi(parts[0])
	if err != nil {
		t.Fatalf("glibc version %q", version)
	}
	b, err := strconv.Atoi(parts[1])
	if err != nil {
		t.Fatalf("glibc version %q", version)
	}
	return a > major || a == major && b > minor
}

func TestLibraryIsReproducible(t *testing.T) {
	first, err := os.ReadFile(targets[0].build(t))
	if err != nil {
		t.Fatal(err)
	}
	// The same sources at another place.
	copied := t.TempDir()
	archive := exec.Command("sh", "-c", `tar -C "$1" --exclude=./build --exclude=./.git -c . | tar -C "$2" -x`, "sh", root(t), copied)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name, err := exec.Command("make", "-s", "-C", root(t), "name").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^1\.0-dev(\+g[0-9a-f]+(-dirty)?)?\n$`).Match(name) || !bytes.Contains(first, bytes.TrimSpace(name)) {
		t.Errorf("the library does not hold its name, %q", name)
	}
	if out, err := exec.Command("make", "-C", copied, "build", "BUILD=out", "NAME="+strings.TrimSpace(string(name))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	second, err := os.ReadFile(filepath.Join(copied, "out", library))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two builds of the same sources differ")
	}
}

func TestLinkUnderNCCLsDefaultName(t *testing.T) {
	path := targets[0].build(t)
	got, err := os.Readlink(filepath.Join(filepath.Dir(path), "libnccl-net.so"))
	if err != nil || got != library {
		t.Errorf("libnccl-net.so -> %q, %v; want %s", got, err, library)
	}
}

// The library loads where there is no RDMA or no libibverbs, says what it looked
// for, and lives on; a forked child stays outside.
func TestLoads(t *testing.T) {
	tests := []struct {
		name    string
		sysfs   map[string]string
		reasons []string // what the log of init has to name
	}{
		{"no device", map[string]string{"class/infiniband/": ""}, []string{"no usable port", "class/infiniband"}},
		{"no library", map[string]string{
			"class/infiniband/mlx5_0/node_guid":                 "0002:c903:0000:0001",
			"class/infiniband/mlx5_0/ports/1/state":             "4: ACTIVE",
			"class/infiniband/mlx5_0/ports/1/phys_state":        "5: LinkUp",
			"class/infiniband/mlx5_0/ports/1/link_layer":        "InfiniBand",
			"class/infiniband/mlx5_0/ports/1/lid":               "0x1",
			"class/infiniband/mlx5_0/ports/1/rate":              "100 Gb/sec (4X EDR)",
			"class/infiniband/mlx5_0/ports/1/gids/0":            "fe80:0000:0000:0000:0002:c903:0000:0001",
			"class/infiniband/mlx5_0/ports/1/gid_attrs/types/0": "IB/RoCE v1",
		}, []string{"/nowhere/libibverbs.so.1", "libibverbs1"}},
	}
	eachTarget(t, func(t *testing.T, g target) {
		program := filepath.Join(t.TempDir(), "load")
		cc := exec.Command(g.cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(root(t), "capi"),
			"-o", program, "testdata/load.c", "-ldl")
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cc, err, out)
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				args := append(slices.Clone(g.run), program, g.build(t), "NCCL_MESH_SYSFS="+tree(t, tt.sysfs),
					"NCCL_MESH_IBVERBS=/nowhere/libibverbs.so.1", "NCCL_MESH_TRANSPORT=rdma")
				var stdout, stderr bytes.Buffer
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, 10*time.Second
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %v\n%s%s", cmd, err, &stdout, &stderr)
				}
				if diff := cmp.Diff(wantLoad(), stdout.String()); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				checkLog(t, stderr.String(), tt.reasons)
			})
		}
	})
}

// The timers of Go's threads may be late, so that its monitor costs NCCL's threads little; those of the thread that loads the library
// may not.
func TestTimersOfGoMayBeLate(t *testing.T) {
	if os.Getuid() != 0 {
		require.Skip(t, require.Netns, "only root is told of another thread's timers")
	}
	program := filepath.Join(t.TempDir(), "slack")
	if out, err := exec.Command(targets[0].cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/slack.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program, targets[0].build(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var before, after, others int
	for line := range strings.Lines(string(out)) {
		var ns int
		if _, err := fmt.Sscanf(line, "own %d %d", &before, &after); err == nil {
			continue
		}
		if _, err := fmt.Sscanf(line, "other %d", &ns); err != nil || ns != 1e6 {
			t.Errorf("a thread of the library: %q, want 1 ms", line)
		}
		others++
	}
	if before == 0 || after != before || others == 0 {
		t.Errorf("the loading thread had %d ns and has %d; %d other threads", before, after, others)
	}
}

// tree makes a directory of files; a name that ends in a slash is a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			path += "/x"
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// wantLoad is what the program prints: a system error from init, usage errors
// for calls without it, argument errors for what the plugin never gave out, but no
// error where NULL is closed, and tuners that keep out; and system errors for everything in the child.
func wantLoad() string {
	const (
		failed = " init=2 devices=5,0 properties=5 listen=5,(nil) connect=5,(nil) accept=4,(nil) regMr=4,(nil) deregMr=4" +
			" isend=4,(nil) irecv=4,(nil) iflush=4,(nil) test=4,0 close=4,4,4 NULL=0,0,0,0\n"
		refused = " init=2 devices=2,0 properties=2 listen=2,(nil) connect=2,(nil) accept=2,(nil) regMr=2,(nil) deregMr=2" +
			" isend=2,(nil) irecv=2,(nil) iflush=2,(nil) test=2,0 close=2,2,2 NULL=2,2,2,2\n"
	)
	nulls := []int{5: 0, 6: 0, 7: 2, 8: 2, 9: 3, 10: 3, 11: 3, 12: 3} // getDeviceMr, irecvConsumed, makeVDevice
	var parent, child strings.Builder
	for v := 5; v <= 12; v++ {
		fmt.Fprintf(&parent, "v%d Mesh nulls=%d%s", v, nulls[v], failed)
		fmt.Fprintf(&child, "v%d Mesh nulls=%d%s", v, nulls[v], refused)
	}
	for v := 2; v <= 6; v++ {
		fmt.Fprintf(&parent, "tuner v%d Mesh nulls=0 init=0,(nil) getCollInfo=0,0,1.5 destroy=0\n", v)
		fmt.Fprintf(&child, "tuner v%d Mesh nulls=0 init=2,(nil) getCollInfo=2,0,1.5 destroy=2\n", v)
	}
	return parent.String() + "finalize(NULL)=0\ndlclose=0\nv12 Mesh nulls=3" + failed + "child\n" + child.String() + "exit 0\n"
}

func checkLog(t *testing.T, log string, reasons []string) {
	t.Helper()
	line := regexp.MustCompile(`^parent 2 17 %s NET/Mesh : (\w+): `)
	build := regexp.MustCompile(`^parent 3 17 %s NET/Mesh : build \S+, protocol \d+\n$`)
	inits, builds := 0, 0
	for text := range strings.Lines(log) {
		if build.MatchString(text) {
			builds++
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("log: %q; want warnings of the parent, with the format %%s", text)
			continue
		}
		if m[1] != "init" {
			continue
		}
		inits++
		for _, reason := range reasons {
			if !strings.Contains(text, reason) {
				t.Errorf("log: %q; want %q in it", text, reason)
			}
		}
	}
	if inits != 9 || builds != 9 {
		t.Errorf("%d lines about init and %d with the build, want 9 of each", inits, builds)
	}
}
