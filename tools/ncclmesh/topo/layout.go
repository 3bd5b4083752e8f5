package topo

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Measures of the picture, in its own units.
const (
	letter    = 7.4 // width of one in a name or label, about
	boxHeight = 44.0
	gap       = 12.0 // between the border of a box, cages and labels on a line
	halfGap   = 7.0  // between the lines of one cable
	cableGap  = 46.0 // between cables of the same two nodes
	margin    = 24.0
)

type point struct{ x, y float64 }

// box is a rectangle by its middle.
type box struct{ x, y, w, h float64 }

// meets reports whether two boxes overlap, or are closer than a distance.
func (b box) meets(o box, distance float64) bool {
	return math.Abs(b.x-o.x) < (b.w+o.w)/2+distance && math.Abs(b.y-o.y) < (b.h+o.h)/2+distance
}

// layout is where things are in the picture: nodes, and labels that found room.
type layout struct {
	nodes  map[string]box
	taken  []box // by nodes and labels
	right  float64
	bottom float64
}

// place puts the nodes on a circle that has room for labels between neighbours; two stand side by side.
func (m *Map) place() *layout {
	names := m.around()
	l := &layout{nodes: map[string]box{}}
	widest, cage, label := 0.0, 0.0, 0.0
	for _, name := range names {
		widest = max(widest, nameWidth(name))
	}
	for _, c := range m.Cables {
		cage = max(cage, cageWidth(c.Ends[0].Cage), cageWidth(c.Ends[1].Cage))
		label = max(label, labelWidth(&c))
	}
	n := float64(max(len(names), 1))
	chord := widest + 2*cage + label + 4*gap // as much as a level line between two neighbours takes, and a slanting one less
	radius := chord / 2
	start := math.Pi
	if len(names) > 2 {
		radius = max(chord/(2*math.Sin(math.Pi/n)), chord*0.75)
		start = -math.Pi / 2
	}
	left, top := math.Inf(1), math.Inf(1)
	height := boxHeight + cableGap*float64(max(m.mostBetween()-1, 0)) // all cables to one node end at its box
	for i, name := range names {
		angle := start + 2*math.Pi*float64(i)/n
		b := box{radius * math.Cos(angle), radius * math.Sin(angle), nameWidth(name), height}
		l.nodes[name] = b
		left, l.right = min(left, b.x-b.w/2), max(l.right, b.x+b.w/2)
		top, l.bottom = min(top, b.y-b.h/2), max(l.bottom, b.y+b.h/2)
	}
	for _, name := range names {
		b := l.nodes[name]
		b.x, b.y = b.x-left+margin, b.y-top+margin
		l.nodes[name], l.taken = b, append(l.taken, b)
	}
	l.right, l.bottom = l.right-left+2*margin, l.bottom-top+2*margin
	return l
}

func nameWidth(name string) float64 { return max(96, letter*float64(utf8.RuneCountInString(name))+36) }

func cageWidth(name string) float64 { return letter*float64(utf8.RuneCountInString(name)) + 12 }

func labelWidth(c *Cable) float64 {
	large, small := c.label()
	return max(letter*1.05*float64(utf8.RuneCountInString(large)), 6.4*float64(utf8.RuneCountInString(small))) + 10
}

// label is what stands on a cable, in two lines.
func (c *Cable) label() (large, small string) {
	more := []string{}
	if n := len(c.Halves); n > 1 {
		more = append(more, fmt.Sprintf("%d halves", n))
	}
	if c.MTU > 0 {
		more = append(more, mtu(c.MTU))
	}
	return rate(c.Mbps), strings.Join(more, " · ")
}

// mostBetween is the largest number of cables between two nodes.
func (m *Map) mostBetween() (most int) {
	count := map[[2]string]int{}
	for _, c := range m.Cables {
		pair := [2]string{c.Ends[0].Node, c.Ends[1].Node}
		slices.Sort(pair[:])
		count[pair]++
		most = max(most, count[pair])
	}
	return most
}

// around are the nodes as they stand on the circle: in the order of a ring, if there is one.
func (m *Map) around() (names []string) {
	if len(m.Rings) > 0 {
		names = slices.Clone(m.Rings[0])
	}
	for _, n := range m.Nodes {
		if !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// A track is a straight line between two nodes, beside others.
type track struct {
	from, to point
	across   point // of length 1
}

// between returns the line of the cable of that number, of several between two boxes.
func between(a, z box, number, count int) track {
	length := max(1, math.Hypot(z.x-a.x, z.y-a.y))
	across := point{-(z.y - a.y) / length, (z.x - a.x) / length}
	shift := cableGap * (float64(number) - float64(count-1)/2)
	return track{point{a.x, a.y}, point{z.x, z.y}, across}.beside(shift)
}

// beside is a track that runs at a distance.
func (t track) beside(distance float64) track {
	dx, dy := t.across.x*distance, t.across.y*distance
	return track{point{t.from.x + dx, t.from.y + dy}, point{t.to.x + dx, t.to.y + dy}, t.across}
}

// on is a point of the track, from 0 to 1.
func (t track) on(part float64) point {
	return point{t.from.x + (t.to.x-t.from.x)*part, t.from.y + (t.to.y-t.from.y)*part}
}

// room finds where on a track, from one part of it to another, a label of a size meets nothing, and takes that.
func (l *layout) room(t track, from, to, w, h float64) (box, bool) {
	const steps = 60
	for i := range steps + 1 {
		p := t.on(from + (to-from)*float64(i)/steps)
		b := box{p.x, p.y, w, h}
		if !slices.ContainsFunc(l.taken, func(o box) bool { return b.meets(o, 3) }) {
			l.taken = append(l.taken, b)
			return b, true
		}
	}
	return box{}, false
}
