package tuner

import "math/bits"

// A pattern is what an algorithm does to the nodes of a mesh.
type pattern struct {
	hops []int // cables of the longest way, for each step that waits for the one before

	// For each byte of the operation, what the busiest node's ...
	copied  float64 // ... kernel sends
	carried float64 // ... cables carry in one direction, what it relays included

	pipelined bool // a chunk goes from step to step, and others follow it
	messages  int  // that a node sends and receives, for a chunk in all steps
	reachable bool // there is a way for every message
}

// A flow is what one node sends another.
type flow struct {
	from, to int
	bytes    float64
}

// patternOf is the pattern of an algorithm on a mesh.
func patternOf(m Mesh, f Func, a Algo) pattern {
	switch {
	case a == Tree:
		return m.trees()
	case a == PAT:
		return m.distances()
	case f == Broadcast || f == Reduce:
		return m.chain()
	case f == AllReduce:
		return m.ring(2)
	}
	return m.ring(1)
}

// ring: in each of n-1 steps every node sends an n-th to its neighbour; an
// all-reduce goes round twice.
func (m Mesh) ring(rounds int) pattern {
	steps := rounds * (m.Nodes - 1)
	var flows []flow
	for n := range m.Nodes {
		flows = append(flows, flow{n, (n + 1) % m.Nodes, float64(steps) / float64(m.Nodes)})
	}
	p := pattern{messages: steps}
	for range steps {
		p.hops = append(p.hops, m.longest(flows))
	}
	m.load(&p, flows)
	return p
}

// chain: everything goes from the root to the node before it, round the ring.
func (m Mesh) chain() pattern {
	p := pattern{pipelined: true, messages: 1}
	var all []flow
	for n := range m.Nodes - 1 {
		step := []flow{{n, n + 1, 1}}
		p.hops = append(p.hops, m.longest(step))
		all = append(all, step...)
	}
	m.load(&p, all)
	return p
}

// trees: two binary trees with half of the bytes each, up to the root and down
// again. NCCL mirrors the second one where the nodes are even, and shifts it by
// one node otherwise, so that a leaf of one tree is an inner node of the other.
func (m Mesh) trees() pattern {
	n := m.Nodes
	parents := make([]int, n)
	depth := make([]int, n)
	deepest := 0
	for r := range n {
		parents[r] = parent(r, n)
		for up := r; up > 0; up = parent(up, n) {
			depth[r]++
		}
		deepest = max(deepest, depth[r])
	}
	second := func(r int) int { return (r + 1) % n }
	if n%2 == 0 {
		second = func(r int) int { return n - 1 - r }
	}
	var all []flow
	level := make([]int, deepest)
	for r := 1; r < n; r++ {
		edge := []flow{{r, parents[r], 0.5}, {second(r), second(parents[r]), 0.5}}
		level[depth[r]-1] = max(level[depth[r]-1], m.longest(edge))
		for _, e := range edge {
			all = append(all, e, flow{e.to, e.from, e.bytes})
		}
	}
	p := pattern{pipelined: true}
	for r := range n {
		peers := 0 // the parent and the children; a channel belongs to one tree
		for other := range n {
			if other > 0 && (r == other || parents[other] == r) {
				peers++
			}
		}
		p.messages = max(p.messages, peers)
	}
	for i := range level {
		p.hops = append(p.hops, level[deepest-1-i])
	}
	p.hops = append(p.hops, level...)
	m.load(&p, all)
	return p
}

// parent is the parent of node r in NCCL's first binary tree of n nodes: with the
// lowest bit of r cleared and the next one set, if there is such a node.
func parent(r, n int) int {
	low := r & -r
	if up := r&^low | low<<1; up < n {
		return up
	}
	return r &^ low
}

// distances: nodes 1, 2, 4, ... apart exchange; what goes far is little.
func (m Mesh) distances() pattern {
	p := pattern{messages: bits.Len(uint(m.Nodes - 1))}
	var all []flow
	left := m.Nodes - 1 // shards that a node has yet to send
	for distance := 1; distance < m.Nodes; distance *= 2 {
		shards := (left + 1) / 2
		left -= shards
		var step []flow
		for n := range m.Nodes {
			step = append(step, flow{n, (n + distance) % m.Nodes, float64(shards) / float64(m.Nodes)})
		}
		p.hops = append(p.hops, m.longest(step))
		all = append(all, step...)
	}
	m.load(&p, all)
	return p
}

func (m Mesh) longest(flows []flow) int {
	most := 0
	for _, f := range flows {
		most = max(most, m.Hops(f.from, f.to))
	}
	return most
}

// load adds up what nodes send, receive and relay. The two functions of a cage
// are two PCIe slots which both cages of a node share, so that it is the node
// that is full, and not a cable.
func (m Mesh) load(p *pattern, flows []flow) {
	out, in, copied := make([]float64, m.Nodes), make([]float64, m.Nodes), make([]float64, m.Nodes)
	p.reachable = true
	for _, f := range flows {
		copied[f.from] += f.bytes
		out[f.from] += f.bytes
		in[f.to] += f.bytes
		routes := m.routes(f.from, f.to)
		for _, r := range routes {
			p.reachable = p.reachable && (m.Relay || len(r) == 0)
			for _, between := range r {
				out[between] += f.bytes / float64(len(routes))
				in[between] += f.bytes / float64(len(routes))
			}
		}
	}
	for n := range m.Nodes {
		p.copied = max(p.copied, copied[n])
		p.carried = max(p.carried, out[n], in[n])
	}
}
