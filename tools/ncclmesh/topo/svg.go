package topo

import (
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"
)

const svgStyle = `<style>
text{font:13px system-ui,"DejaVu Sans",Arial,sans-serif;fill:#1d2733}
.node{fill:#eef3fa;stroke:#2f6db5;stroke-width:1.5}.lost{fill:#fdecec;stroke:#c0392b;stroke-width:1.5}.switch{fill:#f3f3f3;stroke:#777;stroke-width:1.5}
.name{font-weight:600;text-anchor:middle}.why{font-size:11px;fill:#c0392b;text-anchor:middle}
.rdma{stroke:#2f6db5;stroke-width:4}.tcp{stroke:#dd8a1f;stroke-width:4}.heard,.none{stroke:#c0392b;stroke-width:2.5;stroke-dasharray:5 4}.wire{stroke:#777;stroke-width:2}
.pill{fill:#fff;stroke:#c3ccd8}.cage{font-size:11px;text-anchor:middle;fill:#4a5665}
.label{fill:#fff}.speed{text-anchor:middle;font-weight:600}.more{text-anchor:middle;font-size:11px;fill:#4a5665}
</style>`

// picture is what is drawn.
type picture struct {
	*Map
	*layout
	lines, labels strings.Builder // labels lie over lines
}

// WriteSVG writes the map as a picture: nodes on a circle, each cable with its halves in the colour of their state.
func (m *Map) WriteSVG(w io.Writer) error {
	p := &picture{Map: m, layout: m.place()}
	p.drawCables()
	p.drawNetworks()
	p.drawNodes()
	width := max(p.right, 720)
	var notes strings.Builder
	bottom := p.bottom + 8
	drawLegend(&notes, bottom)
	for _, line := range p.below(int((width - 2*margin) / 6.6)) {
		bottom += 19
		fmt.Fprintf(&notes, `<text x="%.0f" y="%.0f">%s</text>`+"\n", margin, bottom+18, html.EscapeString(line))
	}
	height := bottom + 36
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">%s<rect width="100%%" height="100%%" fill="white"/>`+
		"\n%s<g transform=\"translate(%.1f 0)\">\n%s%s</g>\n</svg>\n", width, height, width, height, svgStyle, notes.String(), max(0, (width-p.right)/2), p.lines.String(), p.labels.String())
	return err
}

// below are the lines under the picture, broken after so many letters.
func (p *picture) below(most int) (lines []string) {
	all := p.apartLines()
	for _, l := range p.Loose {
		all = append(all, fmt.Sprintf("%s %s: %s", l.Node, l.Cage, l.Why))
	}
	for _, line := range all {
		at := ""
		for word := range strings.SplitSeq(line, " ") {
			if at != "" && utf8.RuneCountInString(at)+1+utf8.RuneCountInString(word) > most {
				lines = append(lines, at)
				at = "   " + word
				continue
			}
			at = strings.TrimPrefix(at+" "+word, " ")
		}
		lines = append(lines, at)
	}
	return lines
}

// drawLegend says what the lines mean.
func drawLegend(b *strings.Builder, y float64) {
	x := margin
	for _, l := range []struct {
		class, text string
	}{{"rdma", "RDMA works"}, {"tcp", "TCP only"}, {"none", "no packet passes"}} {
		fmt.Fprintf(b, `<line class="%s" x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f"/><text x="%.0f" y="%.0f">%s</text>`+"\n", l.class, x, y, x+34, y, x+42, y+4.5, l.text)
		x += 34 + 8 + letter*float64(len(l.text)) + 26
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" fill="#4a5665">each line is one half of a cable</text>`+"\n", x, y+4.5)
}

func (p *picture) drawNodes() {
	for _, n := range p.Nodes {
		b, class, title := p.nodes[n.Name], "node", ""
		nameAt := b.y + 5
		if n.Error != "" {
			class, title, nameAt = "lost", "<title>"+html.EscapeString(n.Error)+"</title>", b.y-3
			fmt.Fprintf(&p.labels, `<text class="why" x="%.1f" y="%.1f">did not answer</text>`+"\n", b.x, b.y+13)
		}
		fmt.Fprintf(&p.lines, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="9">%s</rect>`+"\n", class, b.x-b.w/2, b.y-b.h/2, b.w, b.h, title)
		fmt.Fprintf(&p.labels, `<text class="name" x="%.1f" y="%.1f">%s</text>`+"\n", b.x, nameAt, html.EscapeString(n.Name))
	}
}

// drawCables draws the cables, those between the same two nodes beside each other. First come the cages, whose labels have to be at
// the ends.
func (p *picture) drawCables() {
	count, drawn := map[[2]string]int{}, map[[2]string]int{}
	for _, c := range p.Cables {
		count[[2]string{c.Ends[0].Node, c.Ends[1].Node}]++
	}
	tracks := make([]track, len(p.Cables))
	for i, c := range p.Cables {
		pair := [2]string{c.Ends[0].Node, c.Ends[1].Node}
		tracks[i] = between(p.nodes[pair[0]], p.nodes[pair[1]], drawn[pair], count[pair])
		drawn[pair]++
		p.drawHalves(&c, tracks[i])
		p.drawCage(c.Ends[0].Cage, tracks[i], 0, 0.5)
		p.drawCage(c.Ends[1].Cage, tracks[i], 1, 0.5)
	}
	for i, c := range p.Cables {
		p.drawSpeed(&c, tracks[i])
	}
}

// drawHalves draws a line for each half, in the colour of its state.
func (p *picture) drawHalves(c *Cable, t track) {
	fmt.Fprintf(&p.lines, "<g><title>%s</title>\n", html.EscapeString(fmt.Sprintf("%v – %v: %s", c.Ends[0], c.Ends[1], c.proof())))
	for i, h := range c.Halves {
		l := t.beside(halfGap * (float64(i) - float64(len(c.Halves)-1)/2))
		fmt.Fprintf(&p.lines, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"><title>%s</title></line>`+"\n", h.State, l.from.x, l.from.y, l.to.x, l.to.y,
			html.EscapeString(fmt.Sprintf("%s – %s: %s, MTU %d and %d", h.Ports[0], h.Ports[1], h.State, h.MTU[0], h.MTU[1])))
	}
	p.lines.WriteString("</g>\n")
}

// drawCage writes the name of a cage beside its node, from there towards another part of the track.
func (p *picture) drawCage(name string, t track, from, to float64) {
	if b, ok := p.room(t, from, to, cageWidth(name), 18); ok {
		fmt.Fprintf(&p.labels, `<rect class="pill" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="9"/><text class="cage" x="%.1f" y="%.1f">%s</text>`+"\n",
			b.x-b.w/2, b.y-b.h/2, b.w, b.h, b.x, b.y+4, html.EscapeString(name))
	}
}

// drawSpeed writes what a cable is in its middle, or as near as there is room. Where there is none the line's title has it.
func (p *picture) drawSpeed(c *Cable, t track) {
	large, small := c.label()
	w := labelWidth(c)
	b, ok := p.room(t, 0.5, 0.7, w, 34)
	if !ok {
		b, ok = p.room(t, 0.5, 0.3, w, 34)
	}
	if !ok {
		return
	}
	fmt.Fprintf(&p.labels, `<rect class="label" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"/><text class="speed" x="%.1f" y="%.1f">%s</text><text class="more" x="%.1f" y="%.1f">%s</text>`+"\n",
		b.x-b.w/2, b.y-b.h/2, b.w, b.h, b.x, b.y-2, html.EscapeString(large), b.x, b.y+13, html.EscapeString(small))
}

// drawNetworks draws switches in the middle, and what is plugged in there.
func (p *picture) drawNetworks() {
	for i, n := range p.Networks {
		at := box{p.right / 2, p.bottom/2 + float64(i)*60, 84, 34}
		for _, e := range n.Ends {
			t := between(p.nodes[e.Node], at, 0, 1)
			fmt.Fprintf(&p.lines, `<line class="wire" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", t.from.x, t.from.y, t.to.x, t.to.y)
			p.drawCage(e.Cage, t, 0, 0.8)
		}
		fmt.Fprintf(&p.lines, `<rect class="switch" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="17"/>`+"\n", at.x-at.w/2, at.y-at.h/2, at.w, at.h)
		fmt.Fprintf(&p.labels, `<text class="name" x="%.1f" y="%.1f">switch</text>`+"\n", at.x, at.y+5)
	}
}
