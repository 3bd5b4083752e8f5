package ibv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/google/go-cmp/cmp"

	"ncclmesh/internal/ccall"
)

// pattern is what field i holds: different in every byte of neighbouring fields. The C side computes the same.
func pattern(i int, size uintptr) []byte {
	b := make([]byte, size)
	for j := range b {
		b[j] = byte(1 + 37*i + 5*j)
	}
	return b
}

// cLayout is a C library with, for each mirror, a function that fills the fields and one that reads them back.
func cLayout() string {
	var b strings.Builder
	b.WriteString(`#include <infiniband/verbs.h>
static int visit(void *p, size_t n, int i, int check)
{
	unsigned char *c = p;
	for (size_t j = 0; j < n; j++)
		if (!check)
			c[j] = 1 + 37 * i + 5 * j;
		else if (c[j] != (unsigned char)(1 + 37 * i + 5 * j))
			return 0;
	return 1;
}
`)
	for _, m := range mirrors {
		fmt.Fprintf(&b, "int visit_%s(struct %s *p, int check)\n{\n", m.c, m.c)
		for i, f := range m.fields {
			if !f.later { // the header at hand may lack it
				fmt.Fprintf(&b, "\tif (!visit(&p->%s, sizeof p->%s, %d, check)) return %d;\n", f.path, f.path, i, i)
			}
		}
		b.WriteString("\treturn -1;\n}\n")
	}
	return b.String()
}

// C and Go agree on every mirrored field, as seen by a C compiler with the header of this machine.
func TestLayoutAgainstC(t *testing.T) {
	source := filepath.Join(t.TempDir(), "layout.c")
	text := cLayout()
	var constants struct{ Constants map[string]int64 }
	b, err := os.ReadFile("testdata/layout-44.json")
	if err == nil {
		err = json.Unmarshal(b, &constants)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(constants.Constants)) {
		text += fmt.Sprintf("_Static_assert(%s == %d, \"%s\");\n", name, constants.Constants[name], name)
	}
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := dlopen(compile(t, source))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mirrors {
		visit, err := purego.Dlsym(h, "visit_"+m.c)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, m.size)
		if r := int32(ccall.Call(visit, uintptr(unsafe.Pointer(&buf[0])), 0, 0, 0, 0, 0)); r != -1 {
			t.Fatalf("%s: C cannot fill field %d", m.c, r)
		}
		for i, f := range m.fields {
			if f.later {
				continue
			}
			if diff := cmp.Diff(pattern(i, f.size), buf[f.offset:f.offset+f.size]); diff != "" {
				t.Errorf("%s.%s written by C, read by Go (-want +got):\n%s", m.c, f.path, diff)
			}
		}
		clear(buf)
		for i, f := range m.fields {
			copy(buf[f.offset:], pattern(i, f.size))
		}
		if r := int32(ccall.Call(visit, uintptr(unsafe.Pointer(&buf[0])), 1, 0, 0, 0, 0)); r != -1 {
			t.Errorf("%s.%s written by Go is not what C reads", m.c, m.fields[r].path)
		}
	}
	if bytes.Count([]byte(text), []byte("visit_")) != len(mirrors) {
		t.Error("not every mirror has its C function")
	}
}
