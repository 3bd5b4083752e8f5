package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

const ibv = "../../ibv"

func recordedLayout(t *testing.T, name string) *layout {
	t.Helper()
	l, err := readLayout(filepath.Join(ibv, "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Both recorded releases give the files that package ibv has, byte by byte.
func TestEmitIsTheSameForEveryRelease(t *testing.T) {
	for _, name := range []string{"layout-44.json", "layout-65.json"} {
		files, err := emit(recordedLayout(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(files) != 4 {
			t.Errorf("%s gives %d files, want 4", name, len(files))
		}
		for file, src := range files {
			want, err := os.ReadFile(filepath.Join(ibv, file))
			if err != nil {
				t.Fatal(err)
			}
			if was, now, ok := firstDifference(want, src); ok {
				t.Errorf("%s gives another %s: it has %q, this is %q", name, file, was, now)
			}
		}
	}
}

func TestLayoutEncoding(t *testing.T) {
	for _, name := range []string{"layout-44.json", "layout-65.json"} {
		want, err := os.ReadFile(filepath.Join(ibv, "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := recordedLayout(t, name).encode()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s read and written again is another file", name)
		}
	}
}

// A table or a header that does not fit ends the run, naming the culprit.
func TestRefusals(t *testing.T) {
	edit := func(l *layout, c string, f func(*structure)) {
		for _, a := range l.Arch {
			s := a[c]
			s.Members = slices.Clone(s.Members)
			f(&s)
			a[c] = s
		}
	}
	rename := func(path string) func(*structure) {
		return func(s *structure) {
			for i := range s.Members {
				if s.Members[i].Path == path {
					s.Members[i].Path = "gone"
				}
			}
		}
	}
	tests := []struct {
		name, from string
		change     func(*layout)
		want       string
	}{
		{"a member is gone", "layout-44.json", func(l *layout) { edit(l, "ibv_wc", rename("status")) }, "struct ibv_wc has no member status"},
		{"a struct is gone", "layout-44.json", func(l *layout) { edit(l, "ibv_qp", func(s *structure) { *s = structure{} }) }, "struct ibv_qp has no member"},
		{"an anchor is gone", "layout-44.json", func(l *layout) { edit(l, "verbs_context", rename("query_port")) }, "struct verbs_context has no member query_port"},
		{"a constant is gone", "layout-44.json", func(l *layout) { delete(l.Constants, "IBV_QPS_RTS") }, "no constant IBV_QPS_RTS"},
		{"a struct outgrew its mirror", "layout-44.json", func(l *layout) { edit(l, "ibv_port_attr", func(s *structure) { s.Size = 136 }) },
			"struct ibv_port_attr has grown to 136 bytes and its mirror PortAttr has room for 128"},
		{"a later member came elsewhere", "layout-65.json", func(l *layout) {
			edit(l, "ibv_port_attr", func(s *structure) {
				for i := range s.Members {
					if s.Members[i].Path == "active_speed_ex" {
						s.Members[i].Offset = 56
					}
				}
			})
		}, "member active_speed_ex is a u32 at 56, the table says u32 at 52"},
		{"another member took a later one's place", "layout-44.json", func(l *layout) { edit(l, "ibv_port_attr", func(s *structure) { s.Size = 56 }) },
			"no member active_speed_ex, and other members where the table puts it"},
		{"two arms of a union", "layout-44.json", func(l *layout) {
			edit(l, "ibv_send_wr", func(s *structure) {
				for i := range s.Members {
					if s.Members[i].Path == "wr.rdma.rkey" {
						s.Members[i].Offset = 40
					}
				}
			})
		}, "overlaps the one before it"},
		{"a bit field", "layout-44.json", func(l *layout) {
			edit(l, "ibv_sge", func(s *structure) { s.Members[0].Type = "bits" })
		}, "no Go type for C type bits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := recordedLayout(t, tt.from)
			tt.change(l)
			_, err := emit(l)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEmitMirror(t *testing.T) {
	a := arch{"c_thing": {Size: 40, Align: 8, Members: []member{
		{Path: "kind", Offset: 0, Size: 1, Align: 1, Type: "u8"},
		{Path: "name", Offset: 1, Size: 5, Align: 1, Type: "i8[5]"},
		{Path: "gid", Offset: 8, Size: 16, Align: 8, Type: "union ibv_gid"},
		{Path: "u", Offset: 24, Size: 8, Align: 8, Type: "union "},
		{Path: "u.small", Offset: 24, Size: 2, Align: 2, Type: "i16"},
		{Path: "u.large", Offset: 24, Size: 8, Align: 8, Type: "u64"},
		{Path: "tail", Offset: 32, Size: 1, Align: 1, Type: "u8"},
	}}}
	m := mirror{goName: "Thing", c: "c_thing", fields: []field{
		{goName: "Small", path: "u.small"}, // not in C's order
		{goName: "Kind", path: "kind"},
		{goName: "Name", path: "name"},
		{goName: "GID", path: "gid"},
	}}
	var b bytes.Buffer
	if err := emitMirror(&b, m, a); err != nil {
		t.Fatal(err)
	}
	want := `
// Thing mirrors struct c_thing.
type Thing struct {
	_ structs.HostLayout
	_ [0]uint64 // C alignment
	Kind byte
	Name [5]byte
	_ [2]byte
	GID GID
	Small int16
	_ [14]byte
}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// needCompilers skips where a compiler of the table or the header is missing.
func needCompilers(t *testing.T) {
	t.Helper()
	for _, c := range compilers {
		if _, err := exec.LookPath(c.cc); err != nil {
			require.Skip(t, require.CC, fmt.Sprintf("no compiler for %s: install %s", c.goarch, c.packages))
		}
	}
}

// The header of this machine, whatever its release, gives the files that are committed.
func TestInstalledHeader(t *testing.T) {
	needCompilers(t)
	if _, err := headerVersion("/"); err != nil {
		require.Skip(t, require.CC, err.Error())
	}
	dir := t.TempDir()
	record := filepath.Join(dir, "layout.json")
	golden, err := os.ReadFile(filepath.Join(ibv, "testdata/layout-44.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, golden, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(io.Discard, "/", dir, record); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"zabi_const.go", "zabi_linux_amd64.go", "zabi_linux_arm64.go", "zabi_test.go"} {
		want, err := os.ReadFile(filepath.Join(ibv, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if was, now, ok := firstDifference(want, got); ok {
			t.Errorf("%s: committed %q, generated %q", name, was, now)
		}
	}
	if got, err := os.ReadFile(record); err != nil || !bytes.Equal(got, golden) {
		t.Errorf("the recorded layout changed (%v)", err)
	}
}

// headers makes a root with a verbs.h of the given text.
func headers(t *testing.T, version, text string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"usr/include/infiniband/verbs.h":         text,
		"usr/lib/any/pkgconfig/libibverbs.pc":    "Name: libibverbs\nVersion: " + version + "\n",
		"usr/include/infiniband/unused_header.h": "",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHeaderRefusals(t *testing.T) {
	needCompilers(t)
	tests := []struct {
		name, root, want string
	}{
		{"nothing there", t.TempDir(), "install libibverbs-dev"},
		{"another numbering", headers(t, "2.0", ""), `version "2.0" is not 1.x.RELEASE`},
		{"not C", headers(t, "1.14.44.0", "struct {"), "cannot compile <infiniband/verbs.h>"},
		{"no such struct", headers(t, "1.14.44.0", "struct ibv_sge { int addr; };"), "rdma-core 44.0 on amd64: <infiniband/verbs.h> has no struct ibv_"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			err := run(io.Discard, tt.root, dir, filepath.Join(dir, "layout.json"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 0 {
				t.Errorf("%d files written by a refused run (%v)", len(left), err)
			}
		})
	}
}

// A layout recorded from another release is compared, and kept.
func TestSameABI(t *testing.T) {
	files, err := emit(recordedLayout(t, "layout-65.json"))
	if err != nil {
		t.Fatal(err)
	}
	old := recordedLayout(t, "layout-44.json")
	if err := sameABI(old, files); err != nil {
		t.Error(err)
	}
	old.Constants["IBV_QPS_RTS"] = 77
	if err := sameABI(old, files); err == nil || !strings.Contains(err.Error(), "IBV_QPS_RTS") {
		t.Errorf("got %v, want a difference at IBV_QPS_RTS", err)
	}
}
