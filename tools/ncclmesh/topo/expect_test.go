package topo

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cabled is a map of nodes a to d, each with cages p0 and p1, with those cables: "a0-b1".
func cabled(cables string) *Map {
	var views []view
	for _, n := range []string{"a", "b", "c", "d"} {
		views = append(views, host(n, rdma("f0", "p0"), rdma("f1", "p1")))
	}
	for _, c := range strings.Fields(cables) {
		v := &views[c[0]-'a']
		v.seen.RDMA = append(v.seen.RDMA, sight{Port: "f" + c[1:2], Peer: strings.ToUpper(c[3:4]), PeerPort: "f" + c[4:5]})
	}
	return newMap(views)
}

// expecting is the same as an expectation.
func expecting(t *testing.T, cables string) *Expected {
	t.Helper()
	var lines []string
	for _, c := range strings.Fields(cables) {
		lines = append(lines, c[:1]+":p"+c[1:2]+" "+c[3:4]+":p"+c[4:5])
	}
	x, err := ParseExpected([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestCompare(t *testing.T) {
	tests := []struct {
		name, want, is string
		lines          []string
	}{
		{"as expected", "a0-b1 b0-c1", "a0-b1 b0-c1", []string{"cabled as expected"}},
		{"the other way round", "a0-b1", "b1-a0", []string{"cabled as expected"}},
		{"a plug in the wrong port", "a0-b1", "a0-b0", []string{
			"expected and not there: a:p0 – b:p1", "there and not expected: a:p0 – b:p0", "move the plug in b:p0 to b:p1"}},
		{"two that are exchanged", "a0-b0 a1-b1", "a0-b1 a1-b0", []string{
			"expected and not there: a:p0 – b:p0", "expected and not there: a:p1 – b:p1",
			"there and not expected: a:p0 – b:p1", "there and not expected: a:p1 – b:p0", "swap the plugs in b:p1 and b:p0"}},
		{"one that lacks", "a0-b1 b0-c1", "a0-b1", []string{"expected and not there: b:p0 – c:p1", "put a cable between b:p0 and c:p1, or reseat it"}},
		{"one too many", "a0-b1", "a0-b1 c0-d1", []string{"there and not expected: c:p0 – d:p1", "take the cable between c:p0 and d:p1 away"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := cabled(tt.is).Compare(expecting(t, tt.want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.lines, d.Lines()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What --json has written is an expectation, which is met; functions and devices name their cages.
func TestExpectOwn(t *testing.T) {
	m := cabled("a0-b1 b0-c1")
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(raw), "# two\na:f0 b:rf1\n\n c:p1\tb:rf0 # the second\n"} {
		x, err := ParseExpected([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := m.Compare(x); err != nil || !d.None() {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
}

func TestExpectWrongly(t *testing.T) {
	broken := cabled("a0-b1")
	broken.Nodes[3].Error = "d: cannot be reached"
	tests := []struct{ text, want string }{
		{"", "no cable"},
		{"# nothing\n", "no cable"},
		{"a:p0 b:p1\na:p1\n", `line 2 of the expected map is "a:p1"`},
		{"a:p0 b", "want two ends"},
		{"a:p0 b:", "want two ends"},
		{":p0 b:p0", "want two ends"},
		{"a:p0 b:p1 c:p1", "want two ends"},
		{"a:p0 b:p1\nc:p0 a:p0", "a:p0 is expected to have two cables"},
		{"a:p0 a:p0", "a:p0 is expected to have two cables"},
		{"{", "no JSON"},
		{`{"schema": "ncclmesh.doctor/1"}`, `schema "ncclmesh.doctor/1"; want "ncclmesh.topo/1"`},
		{"a:p0 z:p0", "z is none of the hosts, which are a, b, c, d"},
		{"a:p0 b:p7", "b has no port p7, only p0, p1"},
		{"a:p0 d:p0", "d is not known: d: cannot be reached"},
	}
	for _, tt := range tests {
		x, err := ParseExpected([]byte(tt.text))
		if err == nil {
			_, err = broken.Compare(x)
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// The moves make what was expected, wherever a plug is in one of its ports, and no fewer would:
// tried by going through all that could be done.
func TestFewestMoves(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ports := []End{{"a", "p0"}, {"a", "p1"}, {"b", "p0"}, {"b", "p1"}, {"c", "p0"}, {"c", "p1"}}
	random := func() (cables [][2]End) {
		order := r.Perm(len(ports))
		for i := range r.IntN(len(ports)/2 + 1) {
			cables = append(cables, [2]End{ports[order[2*i]], ports[order[2*i+1]]})
		}
		return cables
	}
	for range 300 {
		want, is, begin := plugs{}, plugs{}, plugs{}
		expected, actual := random(), random()
		for _, c := range expected {
			want.join(c)
		}
		for _, c := range actual {
			is.join(c)
			begin.join(c)
		}
		var d Difference
		d.plan(expected, want, is)
		met := func(p plugs) (n int) {
			for _, c := range expected {
				if p[c[0]] == c[1] {
					n++
				}
			}
			return n
		}
		most := met(is)
		if len(d.Add) != len(expected)-most || len(d.Remove) != len(actual)-most {
			t.Fatalf("from %v to %v makes %d by %v, adds %v and leaves %v", actual, expected, most, d.Moves, d.Add, d.Remove)
		}
		for _, c := range d.Add {
			if _, a := is[c[0]]; a || func() bool { _, b := is[c[1]]; return b }() {
				t.Fatalf("from %v to %v by %v: %v is to be added although a plug is there", actual, expected, d.Moves, c)
			}
		}
		if fewest := search(begin, ports, func(p plugs) bool { return met(p) == most }); fewest != len(d.Moves) {
			t.Fatalf("from %v to %v takes %v; %d would do", actual, expected, d.Moves, fewest)
		}
	}
}

// search is how many exchanges of two ports' plugs lead to what is wanted.
func search(from plugs, ports []End, reached func(plugs) bool) int {
	key := func(p plugs) string {
		text, _ := json.Marshal(func() (list []End) {
			for _, e := range ports {
				list = append(list, p[e])
			}
			return list
		}())
		return string(text)
	}
	seen := map[string]bool{key(from): true}
	for now, n := []plugs{from}, 0; ; n++ {
		var next []plugs
		for _, p := range now {
			if reached(p) {
				return n
			}
			for i, a := range ports {
				for _, b := range ports[i+1:] {
					if p[a] == b {
						continue // both ends of one cable
					}
					q := plugs{}
					for k, v := range p {
						q[k] = v
					}
					q.swap(a, b)
					if k := key(q); !seen[k] {
						seen[k] = true
						next = append(next, q)
					}
				}
			}
		}
		now = next
	}
}

// Whatever is expected is an error, or can be compared, and said.
func FuzzParseExpected(f *testing.F) {
	for _, s := range []string{"a:p0 b:p1", "# x\n a:b:c d:e\n", `{"schema":"ncclmesh.topo/1","cables":[{"ends":[{"node":"a","cage":"p0"},{"node":"b","cage":"p1"}]}]}`, "{}", "a:p0 b:p1 c"} {
		f.Add([]byte(s))
	}
	m := cabled("a0-b1 b0-c1")
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := ParseExpected(text)
		if err != nil {
			return
		}
		if d, err := m.Compare(x); err == nil && len(d.Lines()) == 0 {
			t.Fatalf("%q: nothing is said of %+v", text, d)
		}
	})
}
