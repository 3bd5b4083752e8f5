package routing

import (
	"math"

	"ncclmesh/handshake"
)

// maxTogether is the number of routes that a connection uses at once.
const maxTogether = 4

// Route is a path to a node through relays.
type Route struct {
	Port     uint8           // Port.Index of this node's port at which the route begins
	Via      []handshake.Hop // the relays, at least one
	PeerName string          // the target's interface at which the route ends
	Mbps     uint32          // of the slowest cable
	Names    []string        // host names of the relays, for log lines and errors
	Cables   bool            // every cable connects exactly two nodes: no part of the route is a network that more nodes share
	Spare    bool            // used only if other routes fail: it is longer than those, or exceeds maxTogether
}

// routes returns the routes to a node, in order of preference: through the fewest relays, then the widest, then through
// relays that no other route uses. No two routes share a port of any node. With rdma, every cable must be RDMA at both
// ends.
func (g *graph) routes(target handshake.NodeID, rdma bool) []Route {
	goal := g.index(target)
	if goal <= 0 {
		return nil
	}
	s := search{graph: g, goal: goal, rdma: rdma, used: map[end]bool{}, relays: make([]bool, len(g.nodes))}
	var all []Route
	for path := s.next(); path != nil; path = s.next() {
		r := g.route(path)
		r.Spare = len(all) >= maxTogether || len(all) > 0 && len(r.Via) > len(all[0].Via)
		all = append(all, r)
	}
	return all
}

// route returns the description of a path that starts at this node.
func (g *graph) route(path []cable) Route {
	last := path[len(path)-1]
	r := Route{Port: path[0].near.port, PeerName: last.far.name, Mbps: last.mbps, Cables: true}
	for _, c := range path {
		r.Cables = r.Cables && g.pointToPoint(c.near) && g.pointToPoint(c.far)
	}
	for i, c := range path[:len(path)-1] {
		n := g.nodes[c.far.node]
		r.Via = append(r.Via, handshake.Hop{Process: n.Process, Node: n.Node, In: c.far.port, Out: path[i+1].near.port})
		r.Names = append(r.Names, n.Hostname)
		r.Mbps = min(r.Mbps, c.mbps)
	}
	return r
}

// pointToPoint reports whether a port has only one neighbour node.
func (g *graph) pointToPoint(e end) bool {
	peer := -1
	for _, c := range g.cables[e.node] {
		if c.near == e && peer != c.far.node {
			if peer >= 0 {
				return false
			}
			peer = c.far.node
		}
	}
	return true
}

// search finds one path after the other.
type search struct {
	*graph
	goal   int
	rdma   bool
	used   map[end]bool // ends of the cables of the paths that were found
	relays []bool       // nodes that these paths pass through
}

// usable reports whether a path may use a cable. It excludes the direct cables between the two nodes, because these
// need no relay.
func (s *search) usable(c cable) bool {
	direct := min(c.near.node, c.far.node) == 0 && max(c.near.node, c.far.node) == s.goal
	return !direct && (c.rdma || !s.rdma) && !s.used[c.near] && !s.used[c.far]
}

// next returns the next best path, or nil if there is none.
func (s *search) next() []cable {
	order, far, width := s.measure()
	if far[0] < 0 {
		return nil
	}
	for _, i := range order[1:] {
		for _, c := range s.cables[i] {
			if s.usable(c) && far[c.far.node] == far[i]-1 {
				width[i] = max(width[i], min(c.mbps, width[c.far.node]))
			}
		}
	}
	var path []cable
	for at := 0; at != s.goal; at = path[len(path)-1].far.node {
		var best *cable
		for i := range s.cables[at] {
			c := &s.cables[at][i]
			if !s.usable(*c) || far[c.far.node] != far[at]-1 || min(c.mbps, width[c.far.node]) < width[0] {
				continue
			}
			if best == nil || s.relays[best.far.node] && !s.relays[c.far.node] {
				best = c
			}
		}
		path = append(path, *best)
	}
	for _, c := range path {
		s.used[c.near], s.used[c.far] = true, true
		s.relays[c.far.node] = c.far.node != s.goal
	}
	return path
}

// measure returns the nodes from which the goal can be reached, nearest first; the distance of each node from the goal
// in cables, or -1 if it cannot be reached; and the widths, with only the goal's filled in.
func (s *search) measure() (order, far []int, width []uint32) {
	far, width = make([]int, len(s.nodes)), make([]uint32, len(s.nodes))
	for i := range far {
		far[i] = -1
	}
	far[s.goal], width[s.goal] = 0, math.MaxUint32
	order = []int{s.goal}
	for i := 0; i < len(order); i++ {
		for _, c := range s.cables[order[i]] {
			if n := c.far.node; s.usable(c) && far[n] < 0 {
				far[n] = far[order[i]] + 1
				order = append(order, n)
			}
		}
	}
	return order, far, width
}
