package onesided

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// A triangle of nodes, each cable with an RDMA device at both ends.
const triangle = `
port a rdma0 netdev p0 addr 192.168.1.1/24 cage p0
port a rdma1 netdev p1 addr 192.168.3.1/24 cage p1
port b rdma0 netdev p0 addr 192.168.2.1/24 cage p0
port b rdma1 netdev p1 addr 192.168.1.2/24 cage p1
port c rdma0 netdev p0 addr 192.168.3.2/24 cage p0
port c rdma1 netdev p1 addr 192.168.2.2/24 cage p1
link a:rdma0 b:rdma1
link b:rdma0 c:rdma1
link c:rdma0 a:rdma1
`

// nodes brings the nodes up, and returns the directory with the library too.
func nodes(t *testing.T) (*fabric.Fabric, string) {
	t.Helper()
	dir, err := fabric.Build("onesided", "library", "fakeverbs", "fakecuda")
	var f *fabric.Fabric
	if err == nil {
		f, err = fabric.Up(fabric.Tools(dir), triangle)
	}
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
	return f, dir
}

// run runs a command on the first n nodes, as rank 0 and so on, over RDMA, and returns their outputs. The arguments of each rank follow those of the
// command: the address of rank 0, and what args returns.
func run(t *testing.T, f *fabric.Fabric, dir string, n int, command []string, args func(rank int) []string) (outputs []string, errs []error) {
	t.Helper()
	const address = "10.99.0.1:5000" // of the first node
	outputs, errs = make([]string, n), make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		cmd := f.Command(context.Background(), f.Nodes[rank], command[0], slices.Concat(command[1:], []string{address}, args(rank))...)
		cmd.Env = append(cmd.Env, "NCCL_SOCKET_IFNAME=mgmt0", "NCCL_MESH_TRANSPORT=rdma", "NCCL_HOSTID="+f.Nodes[rank], "NCCL_MESH_TIME_SCALE=5",
			"NCCL_MESH_KEY=a secret of the test", "NCCL_DEBUG=INFO", "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
		all.Go(func() {
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if err != nil {
				err = fmt.Errorf("rank %d: %w: %s", rank, err, &stderr)
			}
			outputs[rank], errs[rank] = stdout.String(), err
		})
	}
	all.Wait()
	return outputs, errs
}

// program compiles a program that is linked with the library.
func program(t *testing.T, dir, source string) string {
	t.Helper()
	return compile(t, "gcc", source, "-L", dir, "-lncclmesh", "-Wl,-rpath,"+dir, "-lpthread", "-ldl")
}

// withSize are the arguments of the programs of src.
func withSize(n int) func(int) []string {
	return func(rank int) []string { return []string{fmt.Sprint(n), fmt.Sprint(rank)} }
}

// MSCCL++'s examples, with a processor in the place of the GPU.
func TestExamplesOfMSCCLPP(t *testing.T) {
	f, dir := nodes(t)
	for _, name := range []string{"ring", "alltoall"} {
		t.Run(name, func(t *testing.T) {
			outputs, errs := run(t, f, dir, 3, []string{program(t, dir, "src/"+name+".c")}, withSize(3))
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"ok\n", "ok\n", "ok\n"}, outputs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPeerDiesInWait(t *testing.T) {
	f, dir := nodes(t)
	outputs, errs := run(t, f, dir, 2, []string{program(t, dir, "src/end.c")}, withSize(2))
	var ended *exec.ExitError
	if errs[0] != nil || outputs[0] != "ok\n" || !errors.As(errs[1], &ended) {
		t.Errorf("rank 0: %q, %v; rank 1: %v, want its death", outputs[0], errs[0], errs[1])
	}
}

// Data and signal words lie in GPU memory, which the processor cannot touch.
func TestSignalWordsInGPUMemory(t *testing.T) {
	f, dir := nodes(t)
	t.Setenv("LIBCUDA", filepath.Join(dir, "fakecuda", "libcuda.so.1"))
	outputs, errs := run(t, f, dir, 2, []string{program(t, dir, "src/gpu.c")}, withSize(2))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ok\n", "ok\n"}, outputs); diff != "" {
		t.Error(diff)
	}
}

// The worked example of docs/onesided.md, in both languages.
func TestWorkedExample(t *testing.T) {
	f, dir := nodes(t)
	docs := filepath.Join(fabric.Root(), "docs", "onesided")
	var sent, decoded strings.Builder
	for request := range 6 {
		fmt.Fprintf(&sent, "rank 0: request %d sent\n", request)
		fmt.Fprintf(&decoded, "rank 1: request %d decoded\n", request)
	}
	for _, tt := range []struct {
		name    string
		command func(t *testing.T) []string
	}{
		{"C", func(t *testing.T) []string { return []string{program(t, dir, filepath.Join(docs, "kvcache.c"))} }},
		{"Python", func(t *testing.T) []string {
			python, err := exec.LookPath("python3")
			if err != nil {
				require.Skip(t, require.CC, err.Error())
			}
			return []string{python, filepath.Join(docs, "kvcache.py")}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outputs, errs := run(t, f, dir, 2, tt.command(t), func(rank int) []string { return []string{fmt.Sprint(rank)} })
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{sent.String(), decoded.String()}, outputs); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// All of the Python module, by two ranks of one process.
func TestPythonModule(t *testing.T) {
	require.Tools(t, require.CC, "python3")
	f, dir := nodes(t)
	outputs, errs := run(t, f, dir, 1, []string{"python3", "src/module.py"}, func(int) []string { return nil })
	if errs[0] != nil || outputs[0] != "ok\n" {
		t.Errorf("%q, %v", outputs[0], errs[0])
	}
}

// The examples are short enough to be read at once.
func TestWorkedExampleIsShort(t *testing.T) {
	for _, name := range []string{"kvcache.c", "kvcache.py"} {
		b, err := os.ReadFile(filepath.Join(fabric.Root(), "docs", "onesided", name))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "\n"); n > 60 {
			t.Errorf("%s has %d lines, want at most 60", name, n)
		}
	}
}

// The Python module has each function of the header, but those that only C needs.
func TestPythonIsComplete(t *testing.T) {
	_, functions := readHeader(t)
	text, err := os.ReadFile(filepath.Join(header(), "ncclmesh.py"))
	if err != nil {
		t.Fatal(err)
	}
	onlyC := map[string]bool{
		"ncclmeshConnect": true, "ncclmeshRegisterBuffer": true, "ncclmeshPutWithSignalAndFlush": true, // short forms
		"ncclmeshCommRank": true, "ncclmeshCommSize": true, "ncclmeshGetAllConnections": true, // the module has it from the program
		"ncclmeshGetErrorString": true, "ncclmeshDefaultLogHandler": true,
	}
	for _, f := range functions {
		if name := strings.TrimPrefix(f, "ncclmesh"); !onlyC[f] && !regexp.MustCompile(`\b(?:ncclmesh)?`+name+`\b`).Match(text) {
			t.Errorf("ncclmesh.py does not use %s", f)
		}
	}
}
