package onesided

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// warnings are the options of every compilation.
var warnings = []string{"-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"}

// header is the header of the library in the source tree.
func header() string { return filepath.Join(fabric.Root(), "capi", "library") }

// compile compiles a program of src with the header, and returns its path. libraries follow it.
func compile(t *testing.T, cc, source string, options ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	args := slices.Concat([]string{"-std=gnu11"}, warnings, []string{"-I", header(), "-o", program, source}, options)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", cc, args, err, out)
	}
	return program
}

// The header compiles in C and in C++, and alone.
func TestHeaderCompiles(t *testing.T) {
	require.Tools(t, require.CC, "gcc")
	file := filepath.Join(t.TempDir(), "use.c")
	use := "#include <ncclmesh.h>\ntypedef char fifo[sizeof(ncclmeshFifo) == NCCLMESH_FIFO_BYTES ? 1 : -1];\nstatic int zero(fifo f) { return f[0]; }\nint use(void);\nint use(void) { fifo f = {0}; return zero(f); }\n"
	if err := os.WriteFile(file, []byte(use), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ program, language, standard string }{
		{"gcc", "c", "c99"}, {"gcc", "c", "gnu11"}, {"gcc", "c", "c17"}, {"g++", "c++", "c++11"}, {"g++", "c++", "c++20"},
	} {
		t.Run(tt.standard, func(t *testing.T) {
			if _, err := exec.LookPath(tt.program); err != nil {
				require.Skip(t, require.CC, err.Error())
			}
			args := slices.Concat(warnings, []string{"-x", tt.language, "-std=" + tt.standard, "-I", header(), "-fsyntax-only", file})
			if out, err := exec.Command(tt.program, args...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// readHeader returns the text of the header, and the functions that it declares.
func readHeader(t *testing.T) (text string, functions []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(header(), "ncclmesh.h"))
	if err != nil {
		t.Fatal(err)
	}
	text = string(b)
	for _, m := range regexp.MustCompile(`(?m)^(?:ncclmeshResult_t|const char \*|void) ?(ncclmesh\w+)\(`).FindAllStringSubmatch(text, -1) {
		functions = append(functions, m[1])
	}
	slices.Sort(functions)
	return text, functions
}

// Each function that the header declares has a comment before it, but for two that need none.
func TestFunctionsAreDocumented(t *testing.T) {
	text, functions := readHeader(t)
	for _, f := range functions {
		if f == "ncclmeshCommRank" || f == "ncclmeshCommSize" {
			continue
		}
		if !regexp.MustCompile(`\*/\n(?:ncclmeshResult_t|const char \*|void) ?` + f + `\(`).MatchString(text) {
			t.Errorf("%s has no comment", f)
		}
	}
}

// seed are the functions of MSCCL++'s C interface of April 2023, and those of its device connections.
var seed = strings.Fields(`
mscclppGetUniqueId mscclppCommInitRank mscclppCommInitRankFromId mscclppBootstrapAllGather mscclppBootstrapBarrier mscclppCommDestroy
mscclppGetErrorString mscclppConnect mscclppConnectionSetup mscclppGetAllDeviceConnections mscclppGetDeviceConnection mscclppProxyLaunch
mscclppProxyStop mscclppCommRank mscclppCommSize mscclppSetBootstrapConnTimeout mscclppDefaultLogHandler mscclppSetLogHandler
mscclppRegisterBuffer mscclppRegisteredBufferWrite
put signal putWithSignal putWithSignalAndFlush flush wait epochIncrement fifo.push`)

// The table in the header has a counterpart for each of them, which exists.
func TestEveryFunctionHasACounterpart(t *testing.T) {
	text, functions := readHeader(t)
	for _, m := range regexp.MustCompile(`(?m)^static inline [\w ]+?(ncclmesh\w+)\(|^	(ncclmeshTrigger\w+) =`).FindAllStringSubmatch(text, -1) {
		functions = append(functions, m[1]+m[2])
	}
	_, table, ok := strings.Cut(text, "# Counterparts")
	if !ok {
		t.Fatal("the header has no table")
	}
	table, _, _ = strings.Cut(table, "*/")
	for _, f := range seed {
		row := regexp.MustCompile(`(?m)^ \*     .*?\b` + regexp.QuoteMeta(f) + `\b.*?(ncclmesh\w+).*$`).FindStringSubmatch(table)
		if row == nil {
			t.Errorf("the table has no row for %s", f)
		} else if !slices.Contains(functions, row[1]) {
			t.Errorf("the counterpart of %s, %s, does not exist", f, row[1])
		}
	}
	for _, name := range regexp.MustCompile(`ncclmesh[A-Z]\w+`).FindAllString(table, -1) {
		if !slices.Contains(functions, name) {
			t.Errorf("the table names %s, which does not exist", name)
		}
	}
}

// A target is a machine that the library is built for.
type target struct {
	name, goal, file, cc string
	run                  []string // runs a program of the target; none on this machine itself
}

var targets = []target{
	{"native", "library", "libncclmesh.so", "gcc", nil},
	{"arm64", "library-arm64", "arm64/libncclmesh.so", "aarch64-linux-gnu-gcc", []string{"qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"}},
}

func eachTarget(t *testing.T, f func(t *testing.T, g target, library string)) {
	for _, g := range targets {
		t.Run(g.name, func(t *testing.T) {
			require.Tools(t, require.CC, append([]string{g.cc}, g.run[:min(len(g.run), 1)]...)...)
			dir, err := fabric.Build("onesided", g.goal)
			if errors.Is(err, fabric.ErrUnable) {
				require.Skip(t, require.CC, err.Error())
			}
			if err != nil {
				t.Fatal(err)
			}
			f(t, g, filepath.Join(dir, g.file))
		})
	}
}

// The library exports what the header declares, and needs nothing but the C library.
func TestExports(t *testing.T) {
	_, want := readHeader(t)
	eachTarget(t, func(t *testing.T, _ target, library string) {
		f, err := elf.Open(library)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range symbols {
			if elf.ST_BIND(s.Info) != elf.STB_LOCAL && s.Section != elf.SHN_UNDEF {
				got = append(got, s.Name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("exported (-header +library):\n%s", diff)
		}
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range needed {
			if !slices.Contains([]string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, l) {
				t.Errorf("the library needs %s", l)
			}
		}
		for _, p := range f.Progs { // static, because Go's is, and scarce in a program that opens the library late
			if p.Type == elf.PT_TLS && p.Memsz > 64 {
				t.Errorf("the library has %d bytes of thread-local storage, want at most 64", p.Memsz)
			}
		}
		soname, err := f.DynString(elf.DT_SONAME)
		if diff := cmp.Diff([]string{"libncclmesh.so"}, soname); diff != "" || err != nil {
			t.Errorf("soname (-want +got):\n%s%v", diff, err)
		}
	})
}

const loaded = `no communicator to destroy: 0, success: 
a communicator that is none: 4, an argument is not valid: invalid argument: 0x2a is no communicator of this process, or has been destroyed
a barrier of nobody: 4, an argument is not valid: invalid argument: the communicator is NULL
a buffer that is none: 4, an argument is not valid: invalid argument: 0x2a is no buffer of this process, or has been destroyed
a signal of nobody: 4, an argument is not valid: the argument conn is NULL
no memory to free: 0, success: 
memory of another: 4, an argument is not valid: invalid argument: memory at 0x2a is not of ncclmeshAlloc, or was freed before
nowhere to put the id: 4, an argument is not valid: the argument id is NULL
no time: 4, an argument is not valid: invalid argument: a time-out of 0 ms, want more than 0
a rank that is none: 4, an argument is not valid: invalid argument: rank 2 of 2 ranks: there may be 1 to 1024, counted from 0
no handler: 4, an argument is not valid: the argument handler is NULL
an id of nothing: 2, a system call, a driver or an adapter of this node failed: no usable port
communicator (nil)
trigger 0: 8100000000000000 0000000000000000
trigger 200: 07abcd9876543210 ef01231234567890
in a child: 2, a forked child has no texts: libncclmesh was called in a forked child, which has none of its threads: call exec, or use the library in the child only
`

// The library loads on a machine without adapters and libibverbs, and its errors tell why a call failed.
func TestLoads(t *testing.T) {
	eachTarget(t, func(t *testing.T, g target, library string) {
		program := compile(t, g.cc, "src/load.c", "-ldl")
		args := append(slices.Clone(g.run), program, library)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "NCCL_MESH_SYSFS="+t.TempDir(), "NCCL_MESH_IBVERBS=/nowhere/libibverbs.so.1", "NCCL_MESH_TRANSPORT=rdma")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s%s", cmd, err, &stdout, &stderr)
		}
		got := regexp.MustCompile(`(no usable port):.*`).ReplaceAllString(stdout.String(), "$1")
		if diff := cmp.Diff(loaded, got); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, &stderr)
		}
	})
}
