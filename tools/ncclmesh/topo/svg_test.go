package topo

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// draw draws a map, whose boxes and labels may not lie over each other nor out of the picture, and returns how many there are of
// each class. There is a box for each node, a line for each half, and two cages for each cable.
func draw(t *testing.T, m *Map) map[string]int {
	t.Helper()
	var svg bytes.Buffer
	if err := m.WriteSVG(&svg); err != nil {
		t.Fatal(err)
	}
	text := svg.String()
	count := map[string]int{}
	var boxes []box
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
		}
		count[e.Name.Local+" "+at["class"]]++
		if e.Name.Local == "rect" && at["class"] != "" {
			number := func(name string) float64 {
				n, err := strconv.ParseFloat(at[name], 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			w, h := number("width"), number("height")
			boxes = append(boxes, box{number("x") + w/2, number("y") + h/2, w, h})
		}
	}
	for i, b := range boxes {
		for _, other := range boxes[:i] {
			if b.meets(other, 0) {
				t.Errorf("%+v lies over %+v in\n%s", b, other, text)
			}
		}
		if b.x-b.w/2 < 0 || b.y-b.h/2 < 0 {
			t.Errorf("%+v is out of the picture\n%s", b, text)
		}
	}
	halves := 0
	for _, c := range m.Cables {
		halves += len(c.Halves)
	}
	lines := count["line rdma"] + count["line tcp"] + count["line heard"] + count["line none"] - 3 // in the legend
	if count["rect node"]+count["rect lost"] != len(m.Nodes) || lines != halves || count["text cage"] < 2*len(m.Cables) {
		t.Errorf("%v, want %d nodes, %d halves and %d cables, in\n%s", count, len(m.Nodes), halves, len(m.Cables), text)
	}
	return count
}

// Every cable of a mesh of the usual forms has its label, and colours are those of the states.
func TestPicture(t *testing.T) {
	cable := func(from, to string, states ...State) Cable {
		c := Cable{Ends: [2]End{{from, "p0"}, {to, "enp1s0f1np1"}}, Mbps: 200000, MTU: 9000}
		for _, s := range states {
			c.Halves = append(c.Halves, Half{State: s})
		}
		return c
	}
	ring := func(n int) (cables []Cable) {
		for i := range n {
			cables = append(cables, cable(fmt.Sprintf("spark-%d", i), fmt.Sprintf("spark-%d", (i+1)%n), RDMA, RDMA))
		}
		return cables
	}
	tests := []struct {
		name   string
		cables []Cable
		labels int // of speeds
		want   map[string]int
	}{
		{"a cable", []Cable{cable("a", "b", RDMA, TCP)}, 1, map[string]int{"line rdma": 1, "line tcp": 1}},
		{"three cables of two nodes", []Cable{cable("a", "b", RDMA), cable("a", "b", Heard), cable("a", "b", RDMA, None)}, 3, map[string]int{"line heard": 1, "line none": 1}},
		{"triangle", ring(3), 3, nil},
		{"ring of four", ring(4), 4, nil},
		{"ring of eight", ring(8), 8, nil},
		{"ring of sixteen", ring(16), 16, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &Map{Cables: tt.cables}
			seen := map[string]bool{}
			for _, c := range tt.cables {
				for _, e := range c.Ends {
					if !seen[e.Node] {
						m.Nodes = append(m.Nodes, Node{Name: e.Node})
						seen[e.Node] = true
					}
				}
			}
			got := draw(t, m)
			if got["text speed"] != tt.labels {
				t.Errorf("%d labels, want %d", got["text speed"], tt.labels)
			}
			for class, n := range tt.want {
				if legend := strings.Count("line rdma line tcp line none", class); got[class]-legend != n {
					t.Errorf("%d of %s, want %d", got[class]-legend, class, n)
				}
			}
		})
	}
}
