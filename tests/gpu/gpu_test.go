package gpu

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/internal/need"
	"ncclmesh/tests/internal/proved"
	"ncclmesh/tests/require"
)

// patience is a hang guard, not a measure.
const patience = time.Hour

// newestGlibc is that of the oldest system which what is packed has to run on: Ubuntu 22.04 has 2.35, RHEL 9 2.34.
var newestGlibc = []int{2, 34}

// dist is the directory that make gpu-pack packed, moved away from where it was built.
var dist string

// Why there is no dist: what a machine may lack, or what went wrong.
var missing, unable error

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mesh-gpu-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if missing = need.Missing("gcc", "make", "python3", "strip", need.VerbsHeader); missing == nil {
		dist, unable = pack(dir)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// pack builds the archive, and unpacks it somewhere else.
func pack(dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	away := filepath.Join(dir, "away")
	build, err := fabric.Make("gpu-pack")
	if err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(build, "ncclmesh-*.tar.gz"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("make gpu-pack left the archives %q, want one", archives)
	}
	if err := os.Mkdir(away, 0o755); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-C", away, "-xf", archives[0]).CombinedOutput(); err != nil {
		return "", fmt.Errorf("tar: %w\n%s", err, out)
	}
	return filepath.Join(away, strings.TrimSuffix(filepath.Base(archives[0]), ".tar.gz")), nil
}

func needDist(t *testing.T) {
	t.Helper()
	if missing != nil {
		require.Skip(t, require.CC, missing.Error())
	}
	if unable != nil {
		t.Fatal(unable)
	}
}

// python runs a program of the archive or of this directory.
func python(t *testing.T, limit time.Duration, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", args...)
	cmd.Env = append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The file "proved" names the scripts that each of them has passed with, and is written by
// `FULL=1 PROVED=1 go test -run TestScripts ./tests/gpu`.
func TestScripts(t *testing.T) {
	needDist(t)
	files, err := filepath.Glob("selftest/test_*.py")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	scripts, err := filepath.Glob("*.py")
	if err != nil {
		t.Fatal(err)
	}
	scripts = append(scripts, "run", "selftest")
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			if proved.With(t, scripts...) {
				require.Full(t, "tests/gpu TestPreflight, and this test itself where the scripts differ from those that passed it")
			}
			out, err := python(t, patience, []string{"PYTHONPATH=.", "MESH_GPU_BUILD=" + filepath.Join(dist, "build")},
				"-W", "error", "-m", "unittest", "discover", "-s", "selftest", "-p", name)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The driver runs over the nodes and lanes that the ranks on the GPU will have.
func TestPreflight(t *testing.T) {
	needDist(t)
	out, err := python(t, patience, nil, filepath.Join(dist, "tests/gpu/run"), "--preflight", "--out", t.TempDir())
	if err != nil || strings.Count(out, ": ok (") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(out)
}

func TestGPU(t *testing.T) {
	needDist(t)
	if testing.Short() {
		t.Skip("takes minutes")
	}
	out, err := python(t, 8*time.Minute, nil, filepath.Join(dist, "tests/gpu/run"), "--budget", "400", "--out", t.TempDir())
	if reason, ok := strings.CutPrefix(out, "skipped: no GPU: "); ok && err == nil {
		require.Skip(t, require.GPU, strings.TrimSpace(reason))
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Log(out)
}

func TestDistHoldsWhatIsNeeded(t *testing.T) {
	needDist(t)
	var got []string
	err := filepath.WalkDir(dist, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dist, path)
			got = append(got, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("*.py")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"LICENSE", "build/libnccl-net-mesh.so", "build/libnccl-net.so", "build/ncclmesh", "build/netdriver",
		"build/fakeverbs/libibverbs.so.1", "build/fakeverbs/fakenet", "build/fakeverbs/fakefault",
		"tests/fakeverbs/triangle.txt", "tests/gpu/README.md", "tests/gpu/run"}
	for _, s := range scripts {
		want = append(want, "tests/gpu/"+s)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if to, err := os.Readlink(filepath.Join(dist, "build/libnccl-net.so")); err != nil || to != "libnccl-net-mesh.so" {
		t.Errorf("libnccl-net.so leads to %q, %v", to, err)
	}
}

// A checkout may be anywhere, and the archive does not know where.
func TestDistKnowsNoCheckout(t *testing.T) {
	needDist(t)
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dist, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(checkout+"/")) {
			t.Errorf("%s contains %s", path, checkout)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What is packed here runs on older systems.
func TestDistRunsOnOlderSystems(t *testing.T) {
	needDist(t)
	out, err := exec.Command("getconf", "GNU_LIBC_VERSION").Output()
	if err != nil {
		require.Skip(t, require.CC, fmt.Sprintf("no glibc here: %v", err))
	}
	if here := strings.TrimPrefix(strings.TrimSpace(string(out)), "glibc "); slices.Compare(version(here), []int{2, 37}) > 0 {
		t.Skipf("glibc %s: newer than 2.37, whose headers ask for newer symbols; build on an older system", here)
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	libraries := []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2",
		"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
	for _, name := range []string{"libnccl-net-mesh.so", "ncclmesh", "netdriver", "fakeverbs/libibverbs.so.1", "fakeverbs/fakenet", "fakeverbs/fakefault"} {
		f, err := elf.Open(filepath.Join(dist, "build", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Machine != machine {
			t.Errorf("%s is for %v, want %v", name, f.Machine, machine)
		}
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range needed {
			if !slices.Contains(libraries, l) {
				t.Errorf("%s needs %s", name, l)
			}
		}
		symbols, err := f.ImportedSymbols()
		if err != nil || len(symbols) == 0 {
			t.Fatalf("%s: %d imported symbols, %v", name, len(symbols), err)
		}
		for _, s := range symbols {
			if v, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && slices.Compare(version(v), newestGlibc) > 0 {
				t.Errorf("%s needs %s of %s, newer than %v", name, s.Name, s.Version, newestGlibc)
			}
		}
	}
}

// version is that of "2.34" or "2.2.5", in numbers.
func version(s string) (v []int) {
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		v = append(v, n)
	}
	return v
}
