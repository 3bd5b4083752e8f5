package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/fleet"
)

// rdma is an RDMA port of 200 Gb/s, which is up.
func rdma(name, cage string) Port {
	return Port{Name: name, Device: "r" + name + ":1", Cage: "x/" + cage, Label: cage, State: "ACTIVE", Carrier: true, Mbps: 200000, MTU: 9000, Used: true, Cable: true}
}

func plain(name string, mtu int) Port {
	return Port{Name: name, Cage: name, State: "UP", Carrier: true, Mbps: 10000, MTU: mtu, Used: true, Cable: true}
}

func down(p Port) Port {
	p.State, p.Carrier, p.Used = "DOWN", false, false
	return p
}

// away is a port whose interface is in another network namespace, so that its connector has no name.
func away(p Port) Port {
	p.Cage, p.Label, p.Outside = "pci/"+p.Name, "", true
	return p
}

// host is a node with its ports; its id is its name in capitals.
func host(name string, ports ...Port) view {
	return view{name: name, build: "1", node: node{ID: strings.ToUpper(name), Ports: ports}}
}

// see writes "port NODE port" as sights.
func see(texts ...string) (all []sight) {
	for _, t := range texts {
		var s sight
		words := strings.SplitN(t, " ", 4)
		s.Port, s.Peer, s.PeerPort = words[0], words[1], words[2]
		if len(words) > 3 {
			s.Why = words[3]
		}
		all = append(all, s)
	}
	return all
}

func (v view) with(s sights) view {
	v.seen = s
	return v
}

// Of many pairs that reach each other through others there is one line; those that do not reach each other have one each.
func TestManyApart(t *testing.T) {
	ring := func(n int, gap bool) (views []view) {
		name := func(i int) string { return string(rune('a' + i%n)) }
		for i := range n {
			v := host(name(i), rdma("f0", "p0"), rdma("f1", "p1"))
			if !gap || i%4 != 0 {
				v = v.with(sights{RDMA: see("f0 " + strings.ToUpper(name(i+1)) + " f1")})
			}
			views = append(views, v)
		}
		return views
	}
	tests := []struct {
		name  string
		views []view
		want  []string
	}{
		{"four", ring(4, false), []string{"a ↔ c share no cable: through b, or d", "b ↔ d share no cable: through a, or c"}},
		{"eight", ring(8, false), []string{"20 of 28 pairs of nodes share no cable: through the nodes between, which --json lists"}},
	}
	for _, tt := range tests {
		m := newMap(tt.views)
		got := m.apartLines()
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	got := newMap(ring(8, true)).apartLines() // b c d e, and f g h a
	if last := got[len(got)-1]; len(got) != 16+1 || !strings.HasPrefix(last, "6 of 28 pairs of nodes share no cable: through") || !strings.HasSuffix(got[0], "and nothing leads from one to the other") {
		t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
}

func TestText(t *testing.T) {
	lost := host("c")
	lost.ID, lost.err = "", &fleet.HostError{Host: "c", Err: errors.New("cannot be reached: refused")}
	tests := []struct {
		name  string
		views []view
		want  string
	}{
		{"two halves, each seen from one side, and a port with nothing", []view{
			host("a", rdma("f0", "p0"), rdma("g0", "p0"), down(rdma("f1", "p1"))).with(sights{RDMA: see("f0 B f1", "g0 B g1")}),
			host("b", rdma("f0", "p0"), rdma("f1", "p1"), rdma("g1", "p1")).with(sights{Heard: see("f1 A f0", "g1 A g0", "f0 ZZ f9")}),
		}, `a p0 ═ p1 b   200 Gb/s in 2 halves   MTU 9000   RDMA, both halves work
a p1          nothing is plugged in, or the other end is off
b p0          a node that is none of the hosts is at the other end, with its interface f9
`},
		{"functions that all meet are two halves", []view{
			host("a", rdma("f0", "p0"), rdma("g0", "p0")).with(sights{RDMA: see("f0 B f0", "f0 B g0", "g0 B f0", "g0 B g0")}),
			host("b", rdma("f0", "p0"), rdma("g0", "p0")),
		}, "a p0 ═ p0 b   200 Gb/s in 2 halves   MTU 9000   RDMA, both halves work\n"},
		{"one half fails", []view{
			host("a", rdma("f0", "p0"), rdma("g0", "p0")).with(sights{RDMA: see("f0 B f0"), Failed: see("g0 B g0 retry exceeded"), Heard: see("g0 B g0")}),
			host("b", rdma("f0", "p0"), rdma("g0", "p0")),
		}, "a p0 ═ p0 b   200 Gb/s in 2 halves   MTU 9000   RDMA, 1 of 2 halves work: retry exceeded\n"},
		{"one half is down", []view{
			host("a", rdma("f0", "p0"), down(rdma("g0", "p0"))).with(sights{RDMA: see("f0 B f0")}),
			host("b", rdma("f0", "p0")),
		}, "a p0 ═ p0 b   200 Gb/s in 2 halves   MTU 9000   RDMA, 1 of 2 halves work: g0 of a is DOWN\n"},
		{"one half is down at both ends", []view{
			host("a", rdma("f0", "p0"), down(rdma("g0", "p0"))).with(sights{RDMA: see("f0 B f0")}),
			host("b", rdma("f0", "p0"), down(rdma("g0", "p0"))),
		}, "a p0 ═ p0 b   200 Gb/s in 2 halves   MTU 9000   RDMA, 1 of 2 halves work: g0 of a is DOWN\n"},
		{"TCP, and MTUs that differ", []view{
			host("a", plain("e1", 9000)).with(sights{TCP: see("e1 B e1")}),
			host("b", plain("e1", 1500)),
		}, "a e1 ─ e1 b   10 Gb/s   MTU 1500   TCP only: a has no RDMA device there; the MTU of e1 at a is 9000, of e1 at b 1500\n"},
		{"heard, and nothing passes", []view{
			host("a", rdma("f0", "p0")).with(sights{Heard: see("f0 B f0"), Failed: see("f0 B f0 no answer")}),
			host("b", rdma("f0", "p0")),
		}, "a p0 ┄ p0 b   200 Gb/s   MTU 9000   a node answers, but no other packet passes: no answer\n"},
		{"a ring of four, and a node that is not reached", []view{
			host("a", rdma("f0", "p0"), rdma("f1", "p1")).with(sights{RDMA: see("f0 B f1", "f1 D f0")}),
			host("b", rdma("f0", "p0"), rdma("f1", "p1")).with(sights{RDMA: see("f0 E f1")}), lost,
			host("d", rdma("f0", "p0"), rdma("f1", "p1")).with(sights{RDMA: see("f1 E f0")}),
			host("e", rdma("f0", "p0"), rdma("f1", "p1")),
		}, `a p0 ═ p1 b   200 Gb/s   MTU 9000   RDMA works
a p1 ═ p0 d   200 Gb/s   MTU 9000   RDMA works
b p0 ═ p1 e   200 Gb/s   MTU 9000   RDMA works
d p1 ═ p0 e   200 Gb/s   MTU 9000   RDMA works
a ↔ e share no cable: through b, or d
b ↔ d share no cable: through a, or e
ring of 4: a – b – e – d – a
`},
		{"a switch is no cable", []view{
			host("a", plain("m", 1500)).with(sights{TCP: see("m B m", "m C m")}),
			host("b", plain("m", 1500)).with(sights{TCP: see("m C m")}),
			host("c", plain("m", 1500)),
		}, "a:m, b:m, c:m meet at a switch: that is no cable\na has no cable to any of the others\nb has no cable to any of the others\nc has no cable to any of the others\n"},
		{"an interface in another network namespace is a half, although nobody knows of which connector", []view{
			host("a", away(rdma("f0", "p0")), rdma("g0", "p0"), rdma("f1", "p1")).with(sights{RDMA: see("f0 B f1", "g0 B g1"), TCP: see("g0 B g1")}),
			host("b", rdma("f0", "p0"), rdma("f1", "p1"), rdma("g1", "p1")),
		}, `a p0 ═ p1 b   200 Gb/s in 2 halves   MTU 9000   RDMA, both halves work
a p1          the link is up, and none of the hosts is at the other end
b p0          the link is up, and none of the hosts is at the other end
`},
		{"the other end of one is down", []view{
			host("a", down(away(rdma("f0", "p0"))), rdma("g0", "p0")).with(sights{RDMA: see("g0 B g1"), Heard: see("f0 B f1")}),
			host("b", down(rdma("f1", "p1")), rdma("g1", "p1")),
		}, "a p0 ═ p1 b   200 Gb/s in 2 halves   MTU 9000   RDMA, 1 of 2 halves work: f0 of a is in another network namespace\n"},
		{"nothing comes over one", []view{
			host("a", down(away(rdma("f0", "p0"))), rdma("g0", "p0")).with(sights{RDMA: see("g0 B g1")}),
			host("b", rdma("f1", "p1"), rdma("g1", "p1")),
		}, `a p0 ═ p1 b   200 Gb/s in 2 halves   MTU 9000   RDMA, 1 of 2 halves work: f0 of a is in another network namespace
a f0          its interface is in another network namespace, and no other node sees it
`},
		{"the shorter of two reasons", []view{
			host("a", rdma("f0", "p0")).with(sights{Heard: see("f0 B f0"), Failed: see("f0 B f0 b: lane broken: retry exceeded")}),
			host("b", rdma("f0", "p0")).with(sights{Failed: see("f0 A f0 retry exceeded")}),
		}, "a p0 ┄ p0 b   200 Gb/s   MTU 9000   a node answers, but no other packet passes: retry exceeded\n"},
		{"connectors of one name go by their interfaces", []view{
			host("a", rdma("f0", "p0"), func() Port { p := rdma("h0", "p0"); p.Cage = "y/p0"; return p }()).with(sights{RDMA: see("h0 B f0")}),
			host("b", rdma("f0", "p0")),
		}, "a h0 ═ p0 b   200 Gb/s   MTU 9000   RDMA works\na f0          the link is up, and none of the hosts is at the other end\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMap(tt.views)
			var text bytes.Buffer
			if err := m.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, text.String()); diff != "" {
				t.Errorf("the map (-want +got):\n%s", diff)
			}
			draw(t, m)
			var again Map
			raw, err := json.Marshal(m)
			if err == nil {
				err = json.Unmarshal(raw, &again)
			}
			if diff := cmp.Diff(*m, again); diff != "" || err != nil {
				t.Errorf("JSON, %v (-want +got):\n%s", err, diff)
			}
			if strings.Contains(string(raw), "null") {
				t.Errorf("a list of %s is null", raw)
			}
		})
	}
}

// An end that does not answer the neighbour discovery of the other is told, whichever of them is the first of a cable.
func TestUnheard(t *testing.T) {
	tests := []struct {
		name string
		a, b []sight // that each has heard
		want [2]bool
	}{
		{"both", see("f0 B f0"), see("f0 A f0"), [2]bool{}},
		{"one half is enough", see("f0 B f0"), see("g0 A g0"), [2]bool{}},
		{"the second does not answer", nil, see("f0 A f0"), [2]bool{false, true}},
		{"the first does not answer", see("f0 B f0"), nil, [2]bool{true, false}},
		{"neither", nil, nil, [2]bool{true, true}},
	}
	for _, tt := range tests {
		for _, from := range []string{"a", "b"} { // who has validated the cable comes first among its links
			seen := map[string]sights{"a": {Heard: tt.a}, "b": {Heard: tt.b}}
			over := map[string]string{"a": "f0 B f0", "b": "f0 A f0"}
			s := seen[from]
			s.RDMA = see(over[from])
			seen[from] = s
			m := newMap([]view{
				host("a", rdma("f0", "p0"), rdma("g0", "p0")).with(seen["a"]),
				host("b", rdma("f0", "p0"), rdma("g0", "p0")).with(seen["b"]),
			})
			if len(m.Cables) != 1 || m.Cables[0].Unheard != tt.want {
				t.Errorf("%s, validated by %s: %+v, want %v", tt.name, from, m.Cables, tt.want)
			}
		}
	}
}

func TestErr(t *testing.T) {
	v := host("a", rdma("f0", "p0"))
	v.err = &fleet.HostError{Host: fleet.Here, Err: errors.New("one\ntwo")}
	m := newMap([]view{v})
	if err := m.Err(); err == nil || err.Error() != "a: one; two" {
		t.Errorf("%v", err)
	}
}

func TestDOT(t *testing.T) {
	m := newMap([]view{host("a", rdma("f0", "p0")).with(sights{RDMA: see(`f0 B f0`)}), host(`b"`, rdma("f0", "p0"))})
	m.Nodes[1].Name, m.Cables = `b"`, []Cable{{Ends: [2]End{{"a", "p0"}, {`b"`, "p0"}}, Halves: []Half{{State: RDMA}}, Mbps: 200000}}
	var dot bytes.Buffer
	if err := m.WriteDOT(&dot); err != nil {
		t.Fatal(err)
	}
	want := "graph mesh {\n\tnode [shape=box, style=rounded];\n\t\"a\" [label=\"a\"];\n\t\"b\\\"\" [label=\"b\\\"\"];\n" +
		"\t\"a\" -- \"b\\\"\" [taillabel=\"p0\", headlabel=\"p0\", label=\"200 Gb/s\", style=bold];\n}\n"
	if diff := cmp.Diff(want, dot.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// join makes a map of cables between nodes of one letter, "ab bc".
func joined(pairs string) *Map {
	m := &Map{}
	for _, p := range strings.Fields(pairs) {
		for _, c := range p {
			if !strings.Contains(fmt.Sprint(m.Nodes), "{"+string(c)+" ") {
				m.Nodes = append(m.Nodes, Node{Name: string(c)})
			}
		}
		m.Cables = append(m.Cables, Cable{Ends: [2]End{{Node: p[:1]}, {Node: p[1:]}}, Halves: []Half{{State: RDMA}}})
	}
	return m
}

func TestGraph(t *testing.T) {
	tests := []struct {
		cables string
		apart  string
		rings  string
	}{
		{"ab", "", ""},
		{"ab bc ca", "", "abc"},
		{"ab ab bc ca", "", "abc"},
		{"ab bc cd", "ac:b ad:bc bd:c", ""},
		{"ab bc cd da", "ac:b,d bd:a,c", "abcd"},
		{"ab ac ad", "bc:a bd:a cd:a", ""},
		{"ab bc cd da ac bd", "", "abcd"},
		{"ab bc ca cd de ef fd", "ad:c ae:cd af:cd bd:c be:cd bf:cd ce:d cf:d", "abc def"},
		{"ab cd", "ac: ad: bc: bd:", ""},
	}
	for _, tt := range tests {
		t.Run(tt.cables, func(t *testing.T) {
			g := joined(tt.cables).graph()
			var apart, rings []string
			for _, a := range g.apart() {
				var ways []string
				for _, w := range a.Through {
					ways = append(ways, strings.Join(w, ""))
				}
				apart = append(apart, a.Nodes[0]+a.Nodes[1]+":"+strings.Join(ways, ","))
			}
			for _, r := range g.rings() {
				rings = append(rings, strings.Join(r, ""))
			}
			if got := strings.Join(apart, " "); got != tt.apart {
				t.Errorf("apart are %q, want %q", got, tt.apart)
			}
			if got := strings.Join(rings, " "); got != tt.rings {
				t.Errorf("rings are %q, want %q", got, tt.rings)
			}
		})
	}
}

// A full mesh of sixteen nodes has more rings than anybody could look at.
func TestManyRings(t *testing.T) {
	var pairs []string
	for a := 'a'; a < 'a'+16; a++ {
		for b := a + 1; b < 'a'+16; b++ {
			pairs = append(pairs, string(a)+string(b))
		}
	}
	if rings := joined(strings.Join(pairs, " ")).graph().rings(); len(rings) != 1 || len(rings[0]) != 16 {
		t.Errorf("%v", rings)
	}
}
