package ibv

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What zabi_test.go lists.
type (
	mirror struct {
		c           string
		size, align uintptr
		room        uintptr // the Go struct is larger than the C one by intention
		fields      []mirrorField
	}
	mirrorField struct {
		path         string
		offset, size uintptr
		later        bool // old headers do not have it
	}
	anchor struct {
		c, path, from string
		offset        int
	}
)

// recorded is a layout as abigen recorded it from a release of rdma-core.
type recorded struct {
	RDMACore string `json:"rdma_core"`
	Arch     map[string]map[string]struct {
		Size, Align uintptr
		Members     []struct {
			Path         string
			Offset, Size uintptr
		}
	}
}

func readRecorded(t *testing.T, release int) recorded {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("testdata/layout-%d.json", release))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d.", release); len(r.RDMACore) < len(want) || r.RDMACore[:len(want)] != want {
		t.Fatalf("layout-%d.json was recorded from rdma-core %s", release, r.RDMACore)
	}
	return r
}

// Every mirrored field lies where C puts it, in an old release and in a recent one.
func TestLayout(t *testing.T) {
	for _, release := range []int{44, 65} {
		t.Run(fmt.Sprintf("rdma-core %d", release), func(t *testing.T) {
			structs := readRecorded(t, release).Arch[runtime.GOARCH]
			for _, m := range mirrors {
				c, ok := structs[m.c]
				if !ok {
					t.Fatalf("no struct %s recorded for %s", m.c, runtime.GOARCH)
				}
				if m.align != c.Align || m.room == 0 && m.size != c.Size || m.room != 0 && (m.size != m.room || m.size < c.Size) {
					t.Errorf("%s: Go has size %d and alignment %d, C %d and %d", m.c, m.size, m.align, c.Size, c.Align)
				}
				want := map[string][2]uintptr{}
				for _, x := range c.Members {
					want[x.Path] = [2]uintptr{x.Offset, x.Size}
				}
				for _, f := range m.fields {
					w, ok := want[f.path]
					if !ok && f.later && f.offset >= c.Size {
						continue
					}
					if !ok {
						t.Errorf("%s.%s is not in C", m.c, f.path)
					} else if diff := cmp.Diff(w, [2]uintptr{f.offset, f.size}); diff != "" {
						t.Errorf("%s.%s: offset and size (-C +Go):\n%s", m.c, f.path, diff)
					}
				}
			}
			for _, a := range anchors {
				at := map[string]int{}
				for _, x := range structs[a.c].Members {
					at[x.Path] = int(x.Offset)
				}
				if got := at[a.path] - at[a.from]; got != a.offset {
					t.Errorf("%s: %s is at %d from %s in C, at %d in Go", a.c, a.path, got, a.from, a.offset)
				}
			}
		})
	}
}

// The recent header has every field that an older one may lack, so that each is checked against C at least once.
func TestLaterFieldsAreRecorded(t *testing.T) {
	structs := readRecorded(t, 65).Arch[runtime.GOARCH]
	n := 0
	for _, m := range mirrors {
		for _, f := range m.fields {
			if !f.later {
				continue
			}
			n++
			found := false
			for _, x := range structs[m.c].Members {
				found = found || x.Path == f.path
			}
			if !found {
				t.Errorf("%s.%s is in no recorded header", m.c, f.path)
			}
		}
	}
	if n == 0 {
		t.Error("no such field in the table: remove this test")
	}
}
