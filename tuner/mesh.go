package tuner

import (
	"errors"
	"strings"
)

// A Topology is how the nodes are cabled, in the order of their ranks.
type Topology int

const (
	Auto Topology = iota // Full up to three nodes, and Ring from four on: a node has two cages
	Full
	RingOfCables
	LineOfCables
)

func (t Topology) String() string {
	return [...]string{"auto", "full", "ring", "line"}[t]
}

// ParseTopology reads the setting. The error says what is accepted.
func ParseTopology(s string) (Topology, error) {
	for t := Auto; t <= LineOfCables; t++ {
		if strings.EqualFold(s, t.String()) {
			return t, nil
		}
	}
	return Auto, errors.New("want auto, full, ring or line")
}

// A Mesh is what the nodes of a communicator are to each other.
type Mesh struct {
	Nodes    int
	Topology Topology
	Relay    bool // nodes pass on what two others without a cable have for each other
}

// topology is Topology without Auto.
func (m Mesh) topology() Topology {
	if m.Topology != Auto {
		return m.Topology
	}
	if m.Nodes <= 3 {
		return Full
	}
	return RingOfCables
}

// A route is the nodes between two others.
type route []int

// routes are the shortest from one node to another: two where both directions
// round a ring are as long.
func (m Mesh) routes(from, to int) []route {
	if m.topology() == Full || from == to {
		return []route{nil}
	}
	up, down := (to-from+m.Nodes)%m.Nodes, (from-to+m.Nodes)%m.Nodes
	if m.topology() == LineOfCables { // there is no cable from the last to the first
		if from < to {
			down = m.Nodes
		} else {
			up = m.Nodes
		}
	}
	var all []route
	if up <= down {
		all = append(all, m.walk(from, to, 1))
	}
	if down <= up {
		all = append(all, m.walk(from, to, m.Nodes-1))
	}
	return all
}

func (m Mesh) walk(from, to, by int) route {
	var r route
	for n := (from + by) % m.Nodes; n != to; n = (n + by) % m.Nodes {
		r = append(r, n)
	}
	return r
}

// Hops is how many cables lie between two nodes, at least.
func (m Mesh) Hops(from, to int) int { return len(m.routes(from, to)[0]) + 1 }
