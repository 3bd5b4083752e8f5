package topo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Expected is how the nodes should be cabled.
type Expected struct {
	Cables [][2]End
}

// ParseExpected reads a Map in JSON, or lines of two ends, as "a:p0 b:p1"; # begins a comment.
// The error names the line.
func ParseExpected(text []byte) (*Expected, error) {
	x := &Expected{}
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		var m Map
		if err := json.Unmarshal(trimmed, &m); err != nil {
			return nil, fmt.Errorf("the expected map is no JSON: %w", err)
		}
		if m.Schema != Schema {
			return nil, fmt.Errorf("the expected map has schema %q; want %q, as `ncclmesh topo --json` writes, or lines as \"a:p0 b:p1\"", m.Schema, Schema)
		}
		for _, c := range m.Cables {
			x.Cables = append(x.Cables, c.Ends)
		}
	} else if err := x.parseLines(text); err != nil {
		return nil, err
	}
	if len(x.Cables) == 0 {
		return nil, fmt.Errorf("the expected map has no cable; want lines as \"a:p0 b:p1\"")
	}
	taken := map[End]bool{}
	for _, c := range x.Cables {
		for _, e := range c {
			if taken[e] {
				return nil, fmt.Errorf("%v is expected to have two cables; a port has one", e)
			}
			taken[e] = true
		}
	}
	return x, nil
}

func (x *Expected) parseLines(text []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var ends [2]End
		ok := len(words) == 2
		for i := 0; ok && i < 2; i++ {
			at := strings.LastIndexByte(words[i], ':')
			if ok = at > 0 && at < len(words[i])-1; ok {
				ends[i] = End{words[i][:at], words[i][at+1:]}
			}
		}
		if !ok {
			return fmt.Errorf("line %d of the expected map is %q; want two ends, as \"a:p0 b:p1\"", n, strings.TrimSpace(line))
		}
		x.Cables = append(x.Cables, ends)
	}
	return lines.Err()
}

// Difference is what is not as expected, and what makes it so.
type Difference struct {
	Missing    [][2]End `json:"missing"`
	Unexpected [][2]End `json:"unexpected"`
	Moves      []Move   `json:"moves"` // the fewest; each takes the plug out of From and puts it into To
	Add        [][2]End `json:"add"`   // cables that there are too few of, after the moves
	Remove     [][2]End `json:"remove"`
}

// Move takes a cable's end out of a port and into another; what was in that goes into the first.
type Move struct {
	From End  `json:"from"`
	To   End  `json:"to"`
	Swap bool `json:"swap"` // something was in To
}

// None reports whether all is as expected.
func (d *Difference) None() bool { return len(d.Missing)+len(d.Unexpected) == 0 }

// plugs are the cables that there are, or should be: what each end is joined to.
type plugs map[End]End

func (p plugs) join(c [2]End) { p[c[0]], p[c[1]] = c[1], c[0] }

// swap exchanges what is plugged into two ports.
func (p plugs) swap(a, b End) {
	x, hasX := p[a]
	y, hasY := p[b]
	delete(p, a)
	delete(p, b)
	if hasX {
		p.join([2]End{b, x})
	}
	if hasY {
		p.join([2]End{a, y})
	}
}

// Compare says what is not as expected. An expected port that does not exist is an error, as a
// node that was not asked is.
func (m *Map) Compare(x *Expected) (*Difference, error) {
	d := &Difference{Missing: [][2]End{}, Unexpected: [][2]End{}, Moves: []Move{}, Add: [][2]End{}, Remove: [][2]End{}}
	want, is := plugs{}, plugs{}
	cables := slices.Clone(x.Cables)
	for i := range cables {
		for k, e := range cables[i] {
			known, err := m.known(e)
			if err != nil {
				return nil, err
			}
			cables[i][k] = known
		}
		want.join(cables[i])
	}
	for _, c := range m.Cables {
		is.join(c.Ends)
		if want[c.Ends[0]] != c.Ends[1] {
			d.Unexpected = append(d.Unexpected, c.Ends)
		}
	}
	for _, c := range cables {
		if is[c[0]] != c[1] {
			d.Missing = append(d.Missing, c)
		}
	}
	d.plan(cables, want, is)
	return d, nil
}

// plan finds the moves. Each makes one expected cable and breaks none: a ring of k wrong cables
// takes k-1 moves, any other chain as many as it has cables to make, or fewer cables than that.
func (d *Difference) plan(cables [][2]End, want, is plugs) {
	for _, c := range cables {
		for side := range c {
			here, there := c[side], c[1-side]
			at, plugged := is[here]
			if !plugged || at == there {
				continue
			}
			_, swap := is[there]
			d.Moves = append(d.Moves, Move{at, there, swap})
			is.swap(at, there)
			break
		}
	}
	for _, c := range cables {
		if is[c[0]] != c[1] {
			d.Add = append(d.Add, c)
		}
	}
	for a, b := range is {
		if want[a] != b && a.String() < b.String() {
			d.Remove = append(d.Remove, [2]End{a, b})
		}
	}
	slices.SortFunc(d.Remove, func(a, b [2]End) int { return strings.Compare(a[0].String(), b[0].String()) })
}

// known finds the cage that an expected end means: by its name, or by that of one of its functions.
func (m *Map) known(e End) (End, error) {
	var names, cages []string
	for _, n := range m.Nodes {
		names = append(names, n.Name)
		if n.Name != e.Node {
			continue
		}
		if n.Error != "" {
			return e, fmt.Errorf("%v is expected to have a cable, and %s is not known: %s", e, n.Name, n.Error)
		}
		for _, c := range m.cagesOf(n) {
			if c.Cage == e.Cage || slices.Contains(c.ports, e.Cage) {
				return c.End, nil
			}
			cages = append(cages, c.Cage)
		}
		return e, fmt.Errorf("%v is expected to have a cable, and %s has no port %s, only %s", e, e.Node, e.Cage, strings.Join(cages, ", "))
	}
	return e, fmt.Errorf("%v is expected to have a cable, and %s is none of the hosts, which are %s", e, e.Node, strings.Join(names, ", "))
}

// namedCage is a cage with the names of its functions.
type namedCage struct {
	End
	ports []string
}

func (m *Map) cagesOf(n Node) (all []namedCage) {
	c := &chart{at: map[portAt]*cage{}}
	c.addCages(&view{name: n.Name, node: node{ID: n.ID, Ports: n.Ports}})
	for _, o := range c.cages {
		k := namedCage{End: o.end}
		for _, p := range o.ports {
			k.ports = append(k.ports, p.Name, p.Device, strings.TrimSuffix(p.Device, ":1"))
		}
		all = append(all, k)
	}
	return all
}

// Lines say the difference for people.
func (d *Difference) Lines() (lines []string) {
	if d.None() {
		return []string{"cabled as expected"}
	}
	for _, c := range d.Missing {
		lines = append(lines, fmt.Sprintf("expected and not there: %v – %v", c[0], c[1]))
	}
	for _, c := range d.Unexpected {
		lines = append(lines, fmt.Sprintf("there and not expected: %v – %v", c[0], c[1]))
	}
	return append(lines, d.Steps()...)
}

// Steps are what to do with the plugs.
func (d *Difference) Steps() (steps []string) {
	for _, v := range d.Moves {
		if v.Swap {
			steps = append(steps, fmt.Sprintf("swap the plugs in %v and %v", v.From, v.To))
		} else {
			steps = append(steps, fmt.Sprintf("move the plug in %v to %v", v.From, v.To))
		}
	}
	for _, c := range d.Add {
		steps = append(steps, fmt.Sprintf("put a cable between %v and %v, or reseat it", c[0], c[1]))
	}
	for _, c := range d.Remove {
		steps = append(steps, fmt.Sprintf("take the cable between %v and %v away", c[0], c[1]))
	}
	return steps
}
