package library

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program builds a Go program under the library's name, whose main package is named so.
func program(t *testing.T, dir, main, goarch string) string {
	t.Helper()
	module, pkg, _ := strings.Cut(main, "/")
	source := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module " + module + "\n", pkg + "/main.go": "package main\n\nfunc main() {}\n"} {
		path := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, Name)
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "./"+pkg)
	build.Dir = source
	build.Env = append(os.Environ(), "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// A library of another's, which has the same name, and one for another machine are told from this project's.
func TestFind(t *testing.T) {
	foreign := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	dirs := map[string]string{}
	for _, name := range []string{"ours", "other", "foreign", "text", "none"} {
		dirs[name] = filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program(t, dirs["ours"], "ncclmesh/capi", runtime.GOARCH)
	program(t, dirs["other"], "upstream/plugin", runtime.GOARCH)
	program(t, dirs["foreign"], "ncclmesh/capi", foreign)
	if err := os.WriteFile(filepath.Join(dirs["text"], Name), []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	type result struct {
		dir    string
		byName bool
		err    string
	}
	var got []result
	for _, l := range find([]string{dirs["none"], dirs["other"], dirs["text"], dirs["foreign"]}, []string{dirs["ours"], dirs["other"]}) {
		r := result{filepath.Base(filepath.Dir(l.Path)), l.ByName, ""}
		if l.Err != nil {
			r.err = strings.TrimPrefix(l.Err.Error(), l.Path)
		}
		got = append(got, r)
	}
	want := []result{
		{"other", true, ": " + ErrOther.Error()}, {"text", true, ": " + ErrOther.Error()},
		{"foreign", true, " is for " + foreign + "; this machine is " + runtime.GOARCH}, {"ours", false, ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Identify("/no/such.so"); err == nil || err.Error() != "/no/such.so does not exist" {
		t.Error(err)
	}
}

func TestSearched(t *testing.T) {
	got := Searched(func(string) string { return "/opt/nccl:relative::/opt/b" })
	if diff := cmp.Diff([]string{"/opt/nccl", "/opt/b"}, got[:2]); diff != "" || got[len(got)-1] != "/usr/lib" {
		t.Errorf("%v (-want +got):\n%s", got, diff)
	}
}

func TestNames(t *testing.T) {
	tests := []struct {
		library, build string
		want           bool
	}{
		{"..1.0-dev+g1234567..", "1.0-dev+g1234567", true},
		{"..1.0-dev+g1234567-dirty..", "1.0-dev+g1234567", false},
		{"..1.0-dev+g1234567-dirty..", "1.0-dev+g1234567-dirty", true},
		{"..1.0-dev+g7654321..", "1.0-dev+g1234567", false},
	}
	for _, tt := range tests {
		if got := names([]byte(tt.library), tt.build); got != tt.want {
			t.Errorf("%s in %s: %v", tt.build, tt.library, got)
		}
	}
}

// The C library that this program's own needs is one that this machine has, by its numbers, not its letters.
func TestOlder(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"2.4", "2.34", true}, {"2.34", "2.4", false}, {"2.34", "2.34", false}, {"", "2.17", true}, {"2.17", "", false}, {"1.99", "2.0", true}} {
		if Older(tt.a, tt.b) != tt.want {
			t.Errorf("%q is older than %q: %v", tt.a, tt.b, !tt.want)
		}
	}
	for _, path := range []string{"/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if needs, err := Needs(path); err != nil || Older(needs, "2.2") {
			t.Errorf("%s needs %q, %v", path, needs, err)
		}
	}
	if _, err := Needs("/etc/passwd"); err == nil {
		t.Error("a text is a library")
	}
}
