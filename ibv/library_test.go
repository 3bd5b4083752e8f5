package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

func TestLoadNothing(t *testing.T) {
	_, err := Load("libnope-1.so", "libnope-2.so")
	var le *LoadError
	if !errors.As(err, &le) || len(le.Missing) != 0 {
		t.Fatalf("got %v, want a LoadError without missing symbols", err)
	}
	if diff := cmp.Diff([]string{"libnope-1.so", "libnope-2.so"}, le.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for _, want := range []string{"libnope-1.so or libnope-2.so", "cannot open shared object file", "install package libibverbs1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// A library that is something else: every required symbol is named, and nothing optional.
func TestLoadSomethingElse(t *testing.T) {
	_, err := Load("libm.so.6")
	var le *LoadError
	if !errors.As(err, &le) {
		t.Fatalf("got %v, want a LoadError", err)
	}
	var want []string
	for _, s := range new(symbols).table() {
		if s.required {
			want = append(want, s.name+"@"+s.version)
		}
	}
	if diff := cmp.Diff(want, le.Missing); diff != "" {
		t.Errorf("missing symbols (-want +got):\n%s", diff)
	}
	if !strings.Contains(err.Error(), "libm.so.6 does not have the required symbols ibv_get_device_list@IBVERBS_1.1, ") {
		t.Errorf("message: %v", err)
	}
}

func TestLoadNextName(t *testing.T) {
	path := compile(t, "testdata/standin.c", versionScript)
	a, err := Load("libnope.so", path)
	if err != nil {
		t.Fatal(err)
	}
	if a.Name() != path {
		t.Errorf("name is %q, want %q", a.Name(), path)
	}
	if b, err := Load("libnope.so", path); err != nil || a != b {
		t.Errorf("the same names gave another library: %p, %v, want %p", b, err, a)
	}
}

// Releases differ in the optional symbols only; a library without versions is taken by its plain names.
func TestOptionalSymbols(t *testing.T) {
	newest := []string{"ibv_query_port_speed", "ibv_reg_mr_iova2", "ibv_reg_dmabuf_mr", "ibv_query_ece", "ibv_set_ece"}
	tests := []struct {
		name  string
		flags []string
		want  []string // optional symbols missing
	}{
		{"1.1", []string{versionScript, "-DRELEASE=1"}, newest},
		{"1.8", []string{versionScript, "-DRELEASE=8"}, []string{"ibv_query_port_speed", "ibv_reg_dmabuf_mr", "ibv_query_ece", "ibv_set_ece"}},
		{"1.10", []string{versionScript, "-DRELEASE=10"}, []string{"ibv_query_port_speed", "ibv_reg_dmabuf_mr"}},
		{"1.12", []string{versionScript, "-DRELEASE=12"}, []string{"ibv_query_port_speed"}},
		{"1.16", []string{versionScript}, nil},
		{"no versions", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "1.8" || tt.name == "1.12" {
				require.Full(t, "the same test of others, and tests/fakeverbs TestOldSymbols")
			}
			l, err := Load(compile(t, "testdata/standin.c", tt.flags...))
			if err != nil {
				t.Fatal(err)
			}
			var missing []string
			for _, s := range l.driver.(*libibverbs).fn.table() {
				if *s.addr == 0 {
					missing = append(missing, s.name)
				}
			}
			if diff := cmp.Diff(tt.want, missing); diff != "" {
				t.Errorf("missing symbols (-want +got):\n%s", diff)
			}
		})
	}
}

// A symbol that exists at an old version only is not the one asked for, yet better than none.
func TestLookupPrefersTheVersion(t *testing.T) {
	path := compile(t, "testdata/versions.c", "-Wl,--version-script=testdata/versions.map")
	h, err := dlopen(path)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, version string
		want          uintptr
	}{
		{"twice", "IBVERBS_1.0", 10},
		{"twice", "IBVERBS_1.1", 11},
		{"twice", "IBVERBS_1.9", 11},
		{"once", "IBVERBS_1.1", 20},
	}
	for _, tt := range tests {
		p := lookup(h, tt.name, tt.version)
		if p == 0 {
			t.Errorf("%s@%s not found", tt.name, tt.version)
			continue
		}
		if got, _ := call(p, 0, 0, 0, 0, 0, 0); got != tt.want {
			t.Errorf("%s@%s gives %d, want %d", tt.name, tt.version, got, tt.want)
		}
	}
	if p := lookup(h, "never", "IBVERBS_1.1"); p != 0 {
		t.Errorf("found a symbol that does not exist at %#x", p)
	}
}

// The libibverbs of this machine loads; without RDMA its device list is empty.
func TestInstalledLibrary(t *testing.T) {
	l, err := Load()
	if err != nil {
		require.Skip(t, "libibverbs", err.Error())
	}
	devices, err := l.Devices()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: devices %v", l.Name(), devices)
	if got, want := l.driver.StatusText(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded"; got != want {
		t.Errorf("status text %q, want %q", got, want)
	}
}

func TestForkInit(t *testing.T) {
	s := loadStandin(t)
	if err := s.ForkInit(); err != nil {
		t.Error(err)
	}
	s.fail("ibv_fork_init", 22)
	if err := s.ForkInit(); err == nil || err.Error() != "ibv: fork_init: invalid argument (EINVAL)" {
		t.Errorf("got %v", err)
	}
}
