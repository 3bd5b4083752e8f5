package routing

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

// cabling describes cables between nodes, as "A-B B-C:50 C-A:t": two cables of 100 Gb/s, one of them plain, and one of
// 50. The ports of a node are p0, p1, … in the order of its cables.
func cabling(text string) (nodes []handshake.MapNode) {
	at := func(name string) *handshake.MapNode {
		i, ok := slices.BinarySearchFunc(nodes, name, func(n handshake.MapNode, s string) int { return strings.Compare(n.Hostname, s) })
		if !ok {
			nodes = slices.Insert(nodes, i, handshake.MapNode{Process: handshake.ProcessID(nodeID(name)), Node: nodeID(name), Hostname: name})
		}
		return &nodes[i]
	}
	for _, c := range strings.Fields(text) {
		ends, kind, _ := strings.Cut(c, ":")
		a, b, _ := strings.Cut(ends, "-")
		speed, plain := strings.CutSuffix(kind, "t")
		mbps, err := strconv.Atoi(speed)
		if err != nil {
			mbps = 100
		}
		at(a)
		at(b) // before pointers into nodes are kept
		x, y := at(a), at(b)
		i, j := uint8(len(x.Links)), uint8(len(y.Links))
		x.Links = append(x.Links, handshake.MapLink{Port: i, Name: portName(i), Mbps: uint32(mbps), RDMA: !plain, Peer: y.Node, PeerName: portName(j)})
		y.Links = append(y.Links, handshake.MapLink{Port: j, Name: portName(j), Mbps: uint32(mbps), RDMA: !plain, Peer: x.Node, PeerName: portName(i)})
	}
	return nodes
}

func portName(i uint8) string { return fmt.Sprintf("p%d", i) }

func nodeID(name string) (id handshake.NodeID) {
	copy(id[:], name)
	return id
}

// words returns routes as text: own port and relays, with a star for a spare one.
func words(routes []Route) []string {
	var all []string
	for _, r := range routes {
		w := strings.Join(append([]string{portName(r.Port)}, r.Names...), " ")
		if r.Spare {
			w += " *"
		}
		all = append(all, w)
	}
	return all
}

// without splits nodes into the one with that name and the others.
func without(nodes []handshake.MapNode, name string) (own handshake.MapNode, others []handshake.MapNode) {
	for _, n := range nodes {
		if n.Hostname == name {
			own = n
		} else {
			others = append(others, n)
		}
	}
	return own, others
}

const (
	ring4     = "A-B B-C C-D D-A"
	ring5     = "A-B B-C C-D D-E E-A"
	ring6     = "A-B B-C C-D D-E E-F F-A"
	triangles = "A-B B-C C-A D-E E-F F-D C-D"
)

func TestRoutes(t *testing.T) {
	tests := []struct {
		name    string
		cabling string
		from    string
		to      string
		rdma    bool
		want    []string
	}{
		{"line of 3", "A-B B-C", "A", "C", true, []string{"p0 B"}},
		{"line of 4", "A-B B-C C-D", "A", "D", true, []string{"p0 B C"}},
		{"line of 4, from within", "A-B B-C C-D", "B", "D", true, []string{"p1 C"}},
		{"ring of 4, opposite", ring4, "A", "C", true, []string{"p0 B", "p1 D"}},
		{"ring of 4, beside", ring4, "A", "B", true, []string{"p1 D C"}},
		{"ring of 5", ring5, "A", "C", true, []string{"p0 B", "p1 E D *"}},
		{"ring of 6, opposite", ring6, "A", "D", true, []string{"p0 B C", "p1 F E"}},
		{"ring of 6", ring6, "A", "C", true, []string{"p0 B", "p1 F E D *"}},
		{"triangle", "A-B B-C C-A", "A", "B", true, []string{"p1 C"}},
		{"star of 4", "A-S B-S C-S", "A", "C", true, []string{"p0 S"}},
		{"star of 4, from its middle", "A-S B-S C-S", "S", "C", true, nil},
		{"two triangles, across", triangles, "A", "F", true, []string{"p1 C D"}},
		{"two triangles, beside", triangles, "A", "B", true, []string{"p1 C"}},
		{"two triangles, the middle", triangles, "C", "D", true, nil},
		{"two cables a hop", "A-B A-B B-C B-C", "A", "C", true, []string{"p0 B", "p1 B"}},
		{"two cables, then one", "A-B A-B B-C", "A", "C", true, []string{"p0 B"}},
		{"the widest first", "A-B:50 B-C:50 A-D D-C", "A", "C", true, []string{"p1 D", "p0 B"}},
		{"as wide as its slowest cable", "A-B B-C:20 A-D:50 D-C:50", "A", "C", true, []string{"p1 D", "p0 B"}},
		{"the widest of two cables", "A-B:50 A-B B-C:200", "A", "C", true, []string{"p1 B"}},
		{"short before wide", "A-B:1 B-C:1 A-D D-E E-C", "A", "C", true, []string{"p0 B", "p1 D E *"}},
		{"relays that nothing goes through first", "A-B A-B A-D B-C B-C D-C", "A", "C", true, []string{"p0 B", "p2 D", "p1 B"}},
		{"five relays", "A-B A-C A-D A-E A-F B-Z C-Z D-Z E-Z F-Z", "A", "Z", true, []string{"p0 B", "p1 C", "p2 D", "p3 E", "p4 F *"}},
		{"plain cables for sockets", "A-B:t B-C A-D D-C", "A", "C", false, []string{"p0 B", "p1 D"}},
		{"plain cables not for queue pairs", "A-B:t B-C A-D D-C", "A", "C", true, []string{"p1 D"}},
		{"no way with queue pairs", "A-B:t B-C", "A", "C", true, nil},
		{"in pieces", "A-B C-D", "A", "D", true, nil},
		{"nobody of that name", "A-B", "A", "X", true, nil},
		{"this node", "A-B B-C C-A", "A", "A", true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own, reported := without(cabling(tt.cabling), tt.from)
			if diff := cmp.Diff(tt.want, words(newGraph(&own, reported).routes(nodeID(tt.to), tt.rdma))); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			slices.Reverse(reported)
			for i := range reported {
				reported[i].Links = slices.Clone(reported[i].Links)
				slices.Reverse(reported[i].Links)
			}
			if diff := cmp.Diff(tt.want, words(newGraph(&own, reported).routes(nodeID(tt.to), tt.rdma))); diff != "" {
				t.Errorf("routes, told in another order (-want +got):\n%s", diff)
			}
		})
	}
}

// A route contains processes, ports and interfaces.
func TestRouteNames(t *testing.T) {
	own, reported := without(cabling("X-B B-C C-A C-D:40"), "D")
	want := []Route{{
		Port: 0, PeerName: "p0", Mbps: 40, Cables: true, Names: []string{"C", "B"},
		Via: []handshake.Hop{
			{Process: handshake.ProcessID(nodeID("C")), Node: nodeID("C"), In: 2, Out: 0},
			{Process: handshake.ProcessID(nodeID("B")), Node: nodeID("B"), In: 1, Out: 0},
		},
	}}
	if diff := cmp.Diff(want, newGraph(&own, reported).routes(nodeID("X"), true)); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

// switched adds a port, sw, to each of some nodes, which connects all of them.
func switched(nodes []handshake.MapNode, names string) []handshake.MapNode {
	for i := range nodes {
		n := &nodes[i]
		for _, peer := range strings.Fields(names) {
			if strings.Contains(names, n.Hostname) && peer != n.Hostname {
				n.Links = append(n.Links, handshake.MapLink{Port: 9, Name: "sw", Mbps: 100, Peer: nodeID(peer), PeerName: "sw"})
			}
		}
	}
	return nodes
}

// A route reports whether it uses a network that more than two nodes share.
func TestRoutesOverCables(t *testing.T) {
	tests := []struct {
		name, cabling, network string
		want                   []string // from A to C
	}{
		{"cables", "A-B B-C", "", []string{"p0 B over cables"}},
		{"two cables to one node", "A-B A-B B-C", "", []string{"p0 B over cables"}},
		{"a network at the end", "A-B C-X", "B C X", []string{"p0 B"}},
		{"a network at the beginning", "A-X B-C", "A B X", []string{"p9 B"}},
		{"a network that two nodes have to themselves", "A-B C-X", "B C", []string{"p0 B over cables"}},
		{"cables beside a network", "A-B B-C", "A B C", []string{"p0 B over cables", "p9 B"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own, reported := without(switched(cabling(tt.cabling), tt.network), "A")
			routes := newGraph(&own, reported).routes(nodeID("C"), false)
			got := words(routes)
			for i, r := range routes {
				if r.Cables {
					got[i] += " over cables"
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

// Contradictory reports cause no error.
func TestLies(t *testing.T) {
	link := func(name, peer, peerName string) handshake.MapLink {
		return handshake.MapLink{Name: name, Mbps: 1000, RDMA: true, Peer: nodeID(peer), PeerName: peerName}
	}
	node := func(name string, links ...handshake.MapLink) handshake.MapNode {
		return handshake.MapNode{Process: handshake.ProcessID{1}, Node: nodeID(name), Hostname: "liar", Links: links}
	}
	dedicated := func(n handshake.MapNode) handshake.MapNode {
		n.Dedicated = true
		return n
	}
	var many []handshake.MapNode
	for i := range 10_000 {
		name := strconv.Itoa(i)
		many = append(many, node(name, link("p0", strconv.Itoa(i+1), "p1"), link("p1", strconv.Itoa(i-1), "p0"), link("p7", "A", "p0")))
	}
	tests := []struct {
		name    string
		cabling string
		first   []handshake.MapNode
		last    []handshake.MapNode
		want    []string // from A to C
	}{
		{"a cable that only one end names", "A-B B-C", nil, []handshake.MapNode{node("E", link("p0", "A", "p1"), link("p1", "C", "p9"))}, []string{"p0 B"}},
		{"the wrong interface", "A-B", nil, []handshake.MapNode{node("C", link("p0", "B", "p0"))}, nil},
		{"a node without an entry", "A-B B-X", nil, nil, nil},
		{"a cable to itself", "A-B B-C B-B", nil, []handshake.MapNode{node("D", link("p0", "D", "p0"))}, []string{"p0 B"}},
		{"the first word counts", "A-B B-C", nil, []handshake.MapNode{node("B", link("p0", "A", "p0"), link("p9", "C", "p0"))}, []string{"p0 B"}},
		{"also of a liar", "A-B B-C", []handshake.MapNode{node("B")}, nil, nil},
		{"a dedicated process has the last word", "A-B B-C", nil, []handshake.MapNode{dedicated(node("B", link("p0", "A", "p0"), link("p1", "C", "p0")))}, []string{"p0 liar"}},
		{"a process that had heard nobody yet", "A-B B-C", []handshake.MapNode{{Process: handshake.ProcessID(nodeID("B")), Node: nodeID("B")}}, nil, []string{"p0 B"}},
		{"this node is not what others say", "A-B B-C", []handshake.MapNode{dedicated(node("A", link("p9", "C", "p9")))}, []handshake.MapNode{node("A")}, []string{"p0 B"}},
		{"a cable told twice", "A-B B-C", []handshake.MapNode{node("B", link("p0", "A", "p0"), link("p1", "C", "p0"), link("p1", "C", "p0"))}, nil, []string{"p0 liar"}},
		{"ten thousand unknown nodes", "A-B B-C", many, many, []string{"p0 B"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own, reported := without(cabling(tt.cabling), "A")
			reported = slices.Concat(tt.first, reported, tt.last)
			g := newGraph(&own, reported)
			if diff := cmp.Diff(tt.want, words(g.routes(nodeID("C"), true))); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			nodes := nearest(own, reported)
			if len(nodes) > handshake.MaxMapNodes || nodes[0].Node != own.Node || len(nodes[0].Links) != len(own.Links) {
				t.Errorf("%d nodes to tell of, the first of them %+v", len(nodes), nodes[0])
			}
		})
	}
}

// A map has at most 16 nodes, the nearest ones.
func TestManyNodes(t *testing.T) {
	var line []string
	for i := range 40 {
		line = append(line, fmt.Sprintf("n%02d-n%02d", i, i+1))
	}
	own, reported := without(cabling(strings.Join(line, " ")), "n00")
	slices.Reverse(reported)
	g := newGraph(&own, reported)
	if r := g.routes(nodeID("n15"), true); len(r) != 1 || len(r[0].Via) != 14 {
		t.Errorf("to the sixteenth node: %v, want one route over 14 relays", words(r))
	}
	if r := g.routes(nodeID("n16"), true); r != nil {
		t.Errorf("to the seventeenth node: %v, want none", words(r))
	}
	for i, n := range nearest(own, reported) {
		if want := fmt.Sprintf("n%02d", i); n.Hostname != want {
			t.Errorf("node %d to tell of is %s, want %s", i, n.Hostname, want)
		}
	}
}

// The first route has the fewest relays and is the widest of those; no two routes share a cable.
func TestRoutesAgainstAllPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		nodes := 3 + rng.IntN(5)
		var cables []string
		for range rng.IntN(3 * nodes) {
			if a, b := rng.IntN(nodes), rng.IntN(nodes); a != b {
				cables = append(cables, fmt.Sprintf("%c-%c:%d%s", 'A'+a, 'A'+b, 10*(1+rng.IntN(3)), []string{"", "", "t"}[rng.IntN(3)]))
			}
		}
		text := strings.Join(cables, " ") + " A-B A-B"
		own, reported := without(cabling(text), "A")
		g := newGraph(&own, reported)
		for _, rdma := range []bool{true, false} {
			routes := g.routes(nodeID("B"), rdma)
			hops, mbps := shortest(g, g.index(nodeID("B")), rdma)
			if (hops > 0) != (len(routes) > 0) || len(routes) > 0 && (len(routes[0].Via) != hops || routes[0].Mbps != mbps) {
				t.Fatalf("round %d, %s: routes %+v; the shortest has %d relays and %d Mb/s", round, text, routes, hops, mbps)
			}
			checkRoutes(t, own.Node, nodeID("B"), routes)
		}
	}
}

// shortest returns the shortest path between the first node and another, by exhaustive search.
func shortest(g *graph, goal int, rdma bool) (relays int, mbps uint32) {
	visited := make([]bool, len(g.nodes))
	var walk func(at, cables int, width uint32)
	walk = func(at, cables int, width uint32) {
		if at == goal {
			if n := cables - 1; n > 0 && (relays == 0 || n < relays || n == relays && width > mbps) {
				relays, mbps = n, width
			}
			return
		}
		visited[at] = true
		for _, c := range g.cables[at] {
			if !visited[c.far.node] && (c.rdma || !rdma) {
				walk(c.far.node, cables+1, min(width, c.mbps))
			}
		}
		visited[at] = false
	}
	walk(0, 0, 1<<31)
	return relays, mbps
}

// checkRoutes checks the invariants of routes.
func checkRoutes(t *testing.T, own, target handshake.NodeID, routes []Route) {
	t.Helper()
	type port struct {
		node handshake.NodeID
		port uint8
	}
	used := map[port]bool{}
	use := func(n handshake.NodeID, p uint8) {
		if used[port{n, p}] {
			t.Errorf("two routes of %+v use port %d of %v", routes, p, n)
		}
		used[port{n, p}] = true
	}
	for i, r := range routes {
		use(own, r.Port)
		visited := map[handshake.NodeID]bool{own: true, target: true}
		for _, h := range r.Via {
			if visited[h.Node] {
				t.Errorf("route %+v visits %v twice", r, h.Node)
			}
			visited[h.Node] = true
			use(h.Node, h.In)
			use(h.Node, h.Out)
		}
		if len(r.Via) == 0 || len(r.Via) > handshake.MaxHops || len(r.Names) != len(r.Via) {
			t.Errorf("route %+v has %d relays and %d names", r, len(r.Via), len(r.Names))
		}
		if want := i >= maxTogether || len(r.Via) > len(routes[0].Via); r.Spare != want || len(r.Via) < len(routes[0].Via) {
			t.Errorf("route %d, %+v, is spare: %v, want %v", i, r, r.Spare, want)
		}
	}
}

// For any map, a route visits each node at most once.
func FuzzMap(f *testing.F) {
	for _, text := range []string{ring4, ring5, triangles, "A-B A-B B-C B-C"} {
		b, err := handshake.AppendMessage(nil, &handshake.Map{Nodes: cabling(text)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		decoded, err := handshake.DecodeMessage(handshake.TypeMap, b)
		if err != nil {
			return
		}
		nodes := decoded.(*handshake.Map).Nodes
		if len(nodes) == 0 {
			return
		}
		own := nodes[0]
		g := newGraph(&own, nodes[1:])
		for _, n := range nodes {
			for _, rdma := range []bool{true, false} {
				for _, r := range g.routes(n.Node, rdma) {
					visited := []handshake.NodeID{own.Node, n.Node}
					for _, h := range r.Via {
						if slices.Contains(visited, h.Node) {
							t.Errorf("route %+v to %v visits %v twice", r, n.Node, h.Node)
						}
						visited = append(visited, h.Node)
					}
					carry := handshake.CircuitOpen{Kind: handshake.LaneTCP, Route: r.Via, Final: handshake.Final{Node: n.Node}}
					if _, err := handshake.AppendMessage(nil, &carry); err != nil && bytes.Contains([]byte(err.Error()), []byte("rout")) {
						t.Errorf("route %+v: %v", r, err)
					}
				}
			}
		}
		if _, err := handshake.AppendMessage(nil, &handshake.Map{Nodes: nearest(own, nodes[1:])}); err != nil {
			t.Errorf("what was told cannot be told: %v", err)
		}
	})
}
