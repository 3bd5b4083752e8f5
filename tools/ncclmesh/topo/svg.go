package topo

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Measures of the picture, in its own units.
const (
	svgSize   = 640.0
	svgRadius = 230.0
	boxWidth  = 120.0
	boxHeight = 40.0
	spacing   = 22.0 // of cables between the same nodes
)

const svgStyle = `<style>text{font:13px sans-serif;fill:#222}.node{fill:#f4f6fa;stroke:#1f5fa8;stroke-width:1.5}.lost{fill:#fbeaea;stroke:#b03030;stroke-width:1.5}` +
	`.rdma{stroke:#1f5fa8;stroke-width:4}.tcp{stroke:#d98a29;stroke-width:2}.heard,.none{stroke:#888;stroke-width:2;stroke-dasharray:6 4}` +
	`.end{font-size:11px;fill:#555}.name{font-weight:bold;text-anchor:middle}.middle{text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:4px}</style>`

type point struct{ x, y float64 }

// WriteSVG writes the map as a picture: nodes on a circle.
func (m *Map) WriteSVG(w io.Writer) error {
	var b strings.Builder
	var below []string
	for _, a := range m.Apart {
		below = append(below, fmt.Sprintf("%s ↔ %s: %s", a.Nodes[0], a.Nodes[1], a.Ways()))
	}
	for _, l := range m.Loose {
		below = append(below, fmt.Sprintf("%s %s: %s", l.Node, l.Cage, l.Why))
	}
	for _, n := range m.Networks {
		below = append(below, list(n.Ends)+" meet at a switch")
	}
	height := svgSize + 18*float64(len(below)) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f">%s<rect width="100%%" height="100%%" fill="white"/>`+"\n", svgSize, height, svgStyle)
	at := map[string]point{}
	for i, name := range m.around() {
		angle := 2*math.Pi*float64(i)/float64(len(m.Nodes)) - math.Pi/2
		at[name] = point{svgSize/2 + svgRadius*math.Cos(angle), svgSize/2 + svgRadius*math.Sin(angle)}
	}
	m.drawCables(&b, at)
	for _, n := range m.Nodes {
		p, class := at[n.Name], "node"
		if n.Error != "" {
			class = "lost"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="8"/><text class="name" x="%.1f" y="%.1f">%s</text>`+"\n",
			class, p.x-boxWidth/2, p.y-boxHeight/2, boxWidth, boxHeight, p.x, p.y+5, html.EscapeString(n.Name))
	}
	fmt.Fprintf(&b, `<line class="rdma" x1="20" y1="%[1]f" x2="60" y2="%[1]f"/><text x="68" y="%[2]f">RDMA</text><line class="tcp" x1="130" y1="%[1]f" x2="170" y2="%[1]f"/>`+
		`<text x="178" y="%[2]f">TCP only</text><line class="heard" x1="260" y1="%[1]f" x2="300" y2="%[1]f"/><text x="308" y="%[2]f">no packet passed</text>`+"\n", svgSize-6, svgSize-2)
	for i, line := range below {
		fmt.Fprintf(&b, `<text x="20" y="%.0f">%s</text>`+"\n", svgSize+18*float64(i+1), html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
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

// drawCables draws the cables, those between the same two nodes beside each other.
func (m *Map) drawCables(b *strings.Builder, at map[string]point) {
	count, drawn := map[[2]string]int{}, map[[2]string]int{}
	for _, c := range m.Cables {
		count[[2]string{c.Ends[0].Node, c.Ends[1].Node}]++
	}
	for _, c := range m.Cables {
		pair := [2]string{c.Ends[0].Node, c.Ends[1].Node}
		from, to := at[pair[0]], at[pair[1]]
		length := max(1, math.Hypot(to.x-from.x, to.y-from.y))
		across := point{-(to.y - from.y) / length, (to.x - from.x) / length}
		shift := spacing * (float64(drawn[pair]) - float64(count[pair]-1)/2)
		drawn[pair]++
		on := func(part float64) point {
			return point{from.x + (to.x-from.x)*part + across.x*shift, from.y + (to.y-from.y)*part + across.y*shift}
		}
		a, z := on(0), on(1)
		fmt.Fprintf(b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"><title>%s</title></line>`+"\n",
			c.best(), a.x, a.y, z.x, z.y, html.EscapeString(fmt.Sprintf("%v – %v: %s", c.Ends[0], c.Ends[1], c.proof())))
		near := min(0.35, (boxWidth/2+22)/length)
		for _, label := range []struct {
			at    point
			text  string
			class string
		}{{on(near), c.Ends[0].Cage, "end middle"}, {on(1 - near), c.Ends[1].Cage, "end middle"}, {on(0.5), rate(c.Mbps), "middle"}} {
			fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", label.class, label.at.x+across.x*10, label.at.y+across.y*10-4, html.EscapeString(label.text))
		}
	}
}
