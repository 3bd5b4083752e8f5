package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

const barStyle = `<style>
text{font:13px system-ui,"DejaVu Sans",Arial,sans-serif;fill:#1d2733}.title{font-size:15px;font-weight:600}.over{font-size:11px;fill:#4a5665}
.forth{fill:#2f6db5}.back{fill:#7aa7d9}.both{fill:#4f9d69}.number{font-size:11px}.low{font-size:11px;fill:#c0392b;font-weight:600}
.limit{stroke:#c0392b;stroke-width:2}.grid{stroke:#e3e8ef}.tick{font-size:11px;fill:#4a5665;text-anchor:middle}
</style>`

// Measures of the picture of links.
const (
	barHeight = 13.0
	rowHeight = 3*barHeight + 17
	barsWide  = 480.0
	barLetter = 7.2
)

// WriteSVG draws bars of each link: one way, the other, and both at once, each with a line where its limit is.
func (r *LinkReport) WriteSVG(w io.Writer) error {
	var links []Link
	most, names := 0.0, 0
	for _, l := range r.Links {
		if l.Error == "" {
			links = append(links, l)
			most = max(most, l.Forth, l.Back, l.Both, 2*l.Allowed)
			names = max(names, utf8.RuneCountInString(l.Ends[0]+" – "+l.Ends[1]), utf8.RuneCountInString(l.Over))
		}
	}
	if len(links) == 0 {
		return errNothing
	}
	left := 24 + barLetter*float64(names)
	top, step := 76.0, roundStep(most)
	scale := barsWide / (step * math.Ceil(most/step))
	bottom := top + rowHeight*float64(len(links))
	var b strings.Builder
	width, height := left+barsWide+70, bottom+40
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">%s<rect width="100%%" height="100%%" fill="white"/>`+"\n", width, height, width, height, barStyle)
	fmt.Fprintf(&b, `<text class="title" x="16" y="26">What cables carry, Gb/s of payload</text>`+"\n")
	x := 16.0
	for _, l := range []struct{ class, text string }{{"forth", "one way"}, {"back", "the other way"}, {"both", "both ways at once, together"}} {
		fmt.Fprintf(&b, `<rect class="%s" x="%.0f" y="42" width="14" height="11"/><text x="%.0f" y="52">%s</text>`+"\n", l.class, x, x+20, l.text)
		x += 44 + barLetter*float64(len(l.text))
	}
	fmt.Fprintf(&b, `<line class="limit" x1="%.0f" y1="40" x2="%.0f" y2="55"/><text x="%.0f" y="52">what link and PCIe allow</text>`+"\n", x+2, x+2, x+10)
	for at := 0.0; at <= most+step*0.999; at += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text class="tick" x="%.1f" y="%.1f">%g</text>`+"\n",
			left+at*scale, top-6, left+at*scale, bottom, left+at*scale, bottom+16, at)
	}
	for i, l := range links {
		l.draw(&b, left, top+rowHeight*float64(i), scale)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// draw draws the bars of a link, whose zero is at x.
func (l *Link) draw(b *strings.Builder, x, y, scale float64) {
	fmt.Fprintf(b, `<text x="16" y="%.1f">%s</text><text class="over" x="16" y="%.1f">%s</text>`+"\n", y+barHeight+4, html.EscapeString(l.Ends[0]+" – "+l.Ends[1]), y+barHeight+20, html.EscapeString(l.Over))
	for i, bar := range []struct {
		name        string
		rate, limit float64
	}{{"forth", l.Forth, l.Allowed}, {"back", l.Back, l.Allowed}, {"both", l.Both, 2 * l.Allowed}} {
		at := y + barHeight*float64(i)
		class := "number"
		text := l.rate(bar.name, bar.rate)
		if strings.HasSuffix(text, mark) {
			class = "low"
		}
		end := bar.rate * scale
		if limit := bar.limit * scale; limit > end && limit < end+8+barLetter*float64(len(text)) {
			end = limit // the number stands behind the line of the limit
		}
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/><text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n",
			bar.name, x, at, bar.rate*scale, barHeight-2, class, x+end+5, at+barHeight-3.5, text)
		if bar.limit > 0 {
			fmt.Fprintf(b, `<line class="limit" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x+bar.limit*scale, at-1, x+bar.limit*scale, at+barHeight-1)
		}
	}
}

// roundStep is a round distance of the lines of a scale, of which there are four to ten.
func roundStep(most float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1e-3)/4)))
	for _, times := range []float64{1, 2, 2.5, 5} {
		if most/(step*times) <= 8 {
			return step * times
		}
	}
	return step * 10
}
