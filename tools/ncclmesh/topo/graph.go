package topo

import (
	"slices"
)

// graph is which nodes share cables over which something passes.
type graph struct {
	names []string
	next  [][]int // of each node, in their order
}

func (m *Map) graph() *graph {
	g := &graph{}
	index := map[string]int{}
	for _, n := range m.Nodes {
		index[n.Name] = len(g.names)
		g.names = append(g.names, n.Name)
	}
	g.next = make([][]int, len(g.names))
	for _, c := range m.Cables {
		if !slices.ContainsFunc(c.Halves, func(h Half) bool { return h.State == RDMA || h.State == TCP }) {
			continue
		}
		a, b := index[c.Ends[0].Node], index[c.Ends[1].Node]
		if !slices.Contains(g.next[a], b) {
			g.next[a], g.next[b] = append(g.next[a], b), append(g.next[b], a)
		}
	}
	for i := range g.next {
		slices.Sort(g.next[i])
	}
	return g
}

// apart are the pairs that share no cable, with the shortest ways between them. Nodes without
// any cable are left out: there is nothing to say of their pairs.
func (g *graph) apart() []Apart {
	all := []Apart{}
	for a := range g.names {
		for b := a + 1; b < len(g.names); b++ {
			if slices.Contains(g.next[a], b) || len(g.next[a]) == 0 || len(g.next[b]) == 0 {
				continue
			}
			p := Apart{Nodes: [2]string{g.names[a], g.names[b]}, Through: [][]string{}, Routes: []Route{}}
			for _, way := range g.ways(a, b) {
				p.Through = append(p.Through, g.named(way[1:len(way)-1]))
			}
			all = append(all, p)
		}
	}
	return all
}

const maxWays = 4 // that are told of one pair

// ways are the shortest ways between two nodes, both included.
func (g *graph) ways(a, b int) (found [][]int) {
	far := g.far(b)
	if far[a] < 0 {
		return nil
	}
	var step func(way []int)
	step = func(way []int) {
		at := way[len(way)-1]
		if at == b {
			found = append(found, slices.Clone(way))
			return
		}
		for _, n := range g.next[at] {
			if far[n] == far[at]-1 && len(found) < maxWays {
				step(append(way, n))
			}
		}
	}
	step([]int{a})
	return found
}

// far is how many cables each node is away from one, -1 of those that it cannot reach.
func (g *graph) far(from int) []int {
	far := slices.Repeat([]int{-1}, len(g.names))
	far[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, n := range g.next[queue[0]] {
			if far[n] < 0 {
				far[n] = far[queue[0]] + 1
				queue = append(queue, n)
			}
		}
	}
	return far
}

// Bounds of a search that could last for ever on a dense mesh.
const (
	maxRings = 8
	maxSteps = 100_000
)

// rings are rings of cables: if one goes through all nodes that have cables, that one alone,
// as NCCL would use it; else those without a short cut, the largest first.
func (g *graph) rings() [][]string {
	cabled := 0
	for _, n := range g.next {
		if len(n) > 0 {
			cabled++
		}
	}
	var whole, others [][]int
	steps := 0
	for start := range g.names {
		g.cycles(start, &steps, func(cycle []int) bool {
			switch {
			case len(cycle) == cabled:
				whole = append(whole, slices.Clone(cycle))
				return false
			case len(others) < maxRings && !g.hasChord(cycle):
				others = append(others, slices.Clone(cycle))
			}
			return true
		})
		if len(whole) > 0 {
			others = whole
			break
		}
	}
	slices.SortStableFunc(others, func(a, b []int) int { return len(b) - len(a) })
	named := [][]string{}
	for _, cycle := range others {
		named = append(named, g.named(cycle))
	}
	return named
}

// cycles calls f for each cycle of three nodes or more that begins at the first of its nodes,
// in one of its directions, until f returns false.
func (g *graph) cycles(start int, steps *int, f func([]int) bool) {
	var walk func(way []int) bool
	walk = func(way []int) bool {
		if *steps++; *steps > maxSteps {
			return false
		}
		for _, n := range g.next[way[len(way)-1]] {
			switch {
			case n == start && len(way) > 2 && way[1] < way[len(way)-1]:
				if !f(way) {
					return false
				}
			case n > start && !slices.Contains(way, n):
				if !walk(append(way, n)) {
					return false
				}
			}
		}
		return true
	}
	walk([]int{start})
}

// hasChord reports whether two nodes of a cycle that are not beside each other share a cable.
func (g *graph) hasChord(cycle []int) bool {
	for i, a := range cycle {
		for k := i + 2; k < len(cycle); k++ {
			if !(i == 0 && k == len(cycle)-1) && slices.Contains(g.next[a], cycle[k]) {
				return true
			}
		}
	}
	return false
}

func (g *graph) named(nodes []int) []string {
	names := []string{}
	for _, n := range nodes {
		names = append(names, g.names[n])
	}
	return names
}
