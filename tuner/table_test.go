package tuner

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func TestClass(t *testing.T) {
	tests := []struct {
		bytes uint64
		want  int
	}{
		{0, 0}, {1, 0}, {4, 0}, {5, 1}, {7, 3}, {8, 4}, {9, 4}, {10, 5}, {15, 7}, {16, 8},
		{1 << 20, 72}, {1<<20 + 1<<18, 73}, {1<<40 - 1, 151}, {1 << 40, 152}, {1 << 41, 156}, {1 << 50, 159},
		{math.MaxUint64, 159},
	}
	for _, tt := range tests {
		if got := Class(tt.bytes); got != tt.want {
			t.Errorf("Class(%d) = %d, want %d", tt.bytes, got, tt.want)
		}
	}
	for class := range NumClasses {
		if got := Class(Least(class)); got != class {
			t.Errorf("class %d begins at %d, which is of class %d", class, Least(class), got)
		}
		if class > 0 && Class(Least(class)-1) != class-1 {
			t.Errorf("the size below class %d is of class %d", class, Class(Least(class)-1))
		}
	}
}

// lines tells what is chosen from which size on, the first two choices of each.
func (t *Table) lines() string {
	var b strings.Builder
	for _, a := range t.Without {
		fmt.Fprintf(&b, "without %v\n", a)
	}
	for f := Func(0); f < NumFuncs; f++ {
		last := ""
		for class := range NumClasses {
			line := ""
			for _, c := range t.Choices[f][class][:2] {
				line += fmt.Sprintf("  %v %v %d", c.Algo, c.Proto, c.Channels)
			}
			if chunk := t.Chunks[f][class]; chunk != 0 {
				line += fmt.Sprintf("  chunk %d", chunk)
			}
			if line != last {
				fmt.Fprintf(&b, "%-13v %14d%s\n", f, Least(class), line)
				last = line
			}
		}
	}
	return b.String()
}

// The answers for the meshes that people have. After a change of the model:
// go test ./tuner -update, and the review is of the difference.
func TestTables(t *testing.T) {
	tests := []struct {
		name string
		mesh Mesh
	}{
		{"2", Mesh{Nodes: 2}},
		{"3", Mesh{Nodes: 3}},
		{"4", Mesh{Nodes: 4}},
		{"4-full", Mesh{Nodes: 4, Topology: Full}},
		{"4-relay", Mesh{Nodes: 4, Relay: true}},
		{"8-relay", Mesh{Nodes: 8, Relay: true}},
		{"5-line", Mesh{Nodes: 5, Topology: LineOfCables}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NewTable(NewModel(tt.mesh, Spark)).lines()
			path := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What holds for each table, whatever the costs are.
func TestTablesAreSound(t *testing.T) {
	for nodes := 2; nodes <= 16; nodes++ {
		for topology := Auto; topology <= LineOfCables; topology++ {
			for _, relay := range []bool{false, true} {
				m := Mesh{nodes, topology, relay}
				table := NewTable(NewModel(m, Spark))
				for f := range table.Choices {
					for class, choices := range table.Choices[f] {
						sound(t, m, Func(f), Least(class), choices)
					}
				}
				full := m.topology() == Full || m.topology() == RingOfCables && nodes == 3 || nodes == 2
				if want := !full && !relay; (len(table.Without) > 0) != want {
					t.Errorf("%+v: without %v", m, table.Without)
				}
			}
		}
	}
}

func sound(t *testing.T, m Mesh, f Func, bytes uint64, choices []Choice) {
	t.Helper()
	seen := map[Choice]bool{}
	if len(choices) > NumChoices {
		t.Errorf("%+v %v of %d: %d choices", m, f, bytes, len(choices))
	}
	for i, c := range choices {
		if c.Channels < 1 || c.Channels > MaxChannels {
			t.Errorf("%+v %v of %d: %+v", m, f, bytes, c)
		}
		if c.Proto == LL128 && i == 0 {
			t.Errorf("%+v %v of %d: LL128 is chosen", m, f, bytes)
		}
		c.Channels = 0
		if seen[c] {
			t.Errorf("%+v %v of %d: %+v twice", m, f, bytes, c)
		}
		seen[c] = true
	}
	for _, p := range Ring.protos() {
		if !seen[Choice{Ring, p, 0}] {
			t.Errorf("%+v %v of %d: no ring with %v", m, f, bytes, p)
		}
	}
}
