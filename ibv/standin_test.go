package ibv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"ncclmesh/internal/ccall"
	"ncclmesh/tests/require"
)

var buildDir string

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "ibv"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// compiler returns the C compiler for the architecture that the test runs on, which may be an emulated one.
func compiler(t testing.TB) []string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}[runtime.GOARCH]
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		require.Skip(t, require.CC, fmt.Sprintf("no C compiler %s for %s (CC names another): %v", cc, runtime.GOARCH, err))
	}
	require.Tools(t, require.CC, require.VerbsHeader)
	return []string{path, "-idirafter", "/usr/include"}
}

// compile builds a shared library and returns its path. The same arguments give the same library.
func compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	out := filepath.Join(buildDir, strings.Join(append([]string{filepath.Base(source)}, flags...), "")+".so")
	out = filepath.Join(buildDir, strings.NewReplacer("/", "_", " ", "_", "=", "_").Replace(strings.TrimPrefix(out, buildDir+"/")))
	if _, err := os.Stat(out); err == nil {
		return out
	}
	args := append(compiler(t), "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", out, source)
	args = append(args, flags...)
	if b, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, b)
	}
	return out
}

// A standin is the library of testdata/standin.c, loaded like any other.
type standin struct {
	*Library
	t testing.TB
}

const versionScript = "-Wl,--version-script=testdata/standin.map"

func loadStandin(t testing.TB, flags ...string) standin {
	t.Helper()
	l, err := Load(compile(t, "testdata/standin.c", append([]string{versionScript}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	s := standin{l, t}
	s.call("standin_speed_ex", 0)
	t.Cleanup(func() {
		if n := s.call("standin_live"); n != 0 {
			t.Errorf("%d C objects left", n)
		}
		if n := s.call("standin_lists"); n != 0 {
			t.Errorf("%d device lists left", n)
		}
		if live := Live(); len(live) != 0 {
			t.Errorf("left open: %v", live)
		}
	})
	return s
}

// call calls a function of the stand-in's own.
//
//go:uintptrescapes
func (s standin) call(name string, args ...uintptr) uintptr {
	s.t.Helper()
	h, err := dlopen(s.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	f, err := purego.Dlsym(h, name)
	if err != nil {
		s.t.Fatal(err)
	}
	var a [6]uintptr
	copy(a[:], args)
	return ccall.Call(f, a[0], a[1], a[2], a[3], a[4], a[5])
}

// fail makes a verb fail once.
func (s standin) fail(verb string, errno syscall.Errno) {
	s.t.Helper()
	s.call("standin_fail", uintptr(unsafe.Pointer(cString(verb))), uintptr(errno))
}

func (s standin) open() *Context {
	s.t.Helper()
	devices, err := s.Devices()
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := devices[0].Open()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { closeAll(s.t, c) })
	return c
}

type closer interface{ Close() error }

func closeAll(t testing.TB, objects ...closer) {
	t.Helper()
	for _, o := range objects {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A pair is what a data-path test needs: a queue pair connected to itself and memory that it may write.
type pair struct {
	s   standin
	ctx *Context
	pd  *PD
	cq  *CQ
	qp  *QP
	mem *Memory
	mr  *MR
}

func newPair(t testing.TB, flags ...string) *pair {
	t.Helper()
	p := &pair{s: loadStandin(t, flags...)}
	p.ctx = p.s.open()
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.pd, err = p.ctx.AllocPD()
	must()
	p.cq, err = p.ctx.CreateCQ(64, nil)
	must()
	p.qp, err = p.pd.CreateQP(QPInit{SendCQ: p.cq, RecvCQ: p.cq, MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 1, Type: IBV_QPT_RC})
	must()
	p.mem, err = Alloc(1 << 16)
	must()
	p.mr, err = p.pd.RegMR(p.mem.Addr(), uintptr(p.mem.Len()), IBV_ACCESS_LOCAL_WRITE|IBV_ACCESS_REMOTE_WRITE)
	must()
	t.Cleanup(func() {
		closeAll(t, p.qp, p.cq, p.mr, p.pd)
		if err := p.mem.Free(); err != nil {
			t.Error(err)
		}
	})
	return p
}
