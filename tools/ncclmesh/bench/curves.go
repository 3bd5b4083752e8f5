package bench

import (
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

var errNothing = errors.New("nothing was measured: there is nothing to draw")

// A curve is bus bandwidth by size.
type curve struct {
	name   string
	points []curvePoint
}

type curvePoint struct {
	bytes int
	bus   float64 // GB/s
}

// WriteSVG draws a curve for each collective: bus bandwidth by size.
func (r *CollReport) WriteSVG(w io.Writer) error {
	var all []curve
	for _, row := range r.Rows {
		all = appendPoint(all, row.Kind, row.Bytes, row.Bus)
	}
	return drawCurves("Collectives in host memory", all, w)
}

// WriteSVG draws a curve for each collective, out of place: bus bandwidth by size.
func (r *NCCLReport) WriteSVG(w io.Writer) error {
	var all []curve
	for _, row := range r.Rows {
		all = appendPoint(all, row.Kind, row.Bytes, row.OutPlace.Bus)
	}
	return drawCurves("NCCL's collectives on GPUs", all, w)
}

// appendPoint adds a point to the last curve, or to a new one where that has another name.
func appendPoint(all []curve, name string, bytes int, bus float64) []curve {
	if len(all) == 0 || all[len(all)-1].name != name {
		all = append(all, curve{name: name})
	}
	last := &all[len(all)-1]
	last.points = append(last.points, curvePoint{bytes, bus})
	return all
}

const curveStyle = `<style>
text{font:13px system-ui,"DejaVu Sans",Arial,sans-serif;fill:#1d2733}.title{font-size:15px;font-weight:600}
.grid{stroke:#e3e8ef}.tick{font-size:11px;fill:#4a5665}.x{text-anchor:middle}.y{text-anchor:end}
polyline{fill:none;stroke-width:2.5;stroke-linejoin:round}.c0{stroke:#2f6db5}.c1{stroke:#dd8a1f}.c2{stroke:#4f9d69}.c3{stroke:#8a5fb0}
circle.c0{fill:#2f6db5}circle.c1{fill:#dd8a1f}circle.c2{fill:#4f9d69}circle.c3{fill:#8a5fb0}
</style>`

// The picture of curves.
const (
	curvesLeft, curvesTop   = 76.0, 84.0
	curvesWide, curvesHigh  = 560.0, 260.0
	curvesRight, curvesFoot = 36.0, 56.0
)

// drawCurves draws them over a scale of sizes, by powers of two, and one of GB/s.
func drawCurves(title string, all []curve, w io.Writer) error {
	if len(all) == 0 {
		return errNothing
	}
	low, high, most := math.Inf(1), math.Inf(-1), 0.0
	for _, c := range all {
		for _, p := range c.points {
			low, high, most = min(low, math.Log2(float64(p.bytes))), max(high, math.Log2(float64(p.bytes))), max(most, p.bus)
		}
	}
	low, high = math.Floor(low), max(math.Ceil(high), math.Floor(low)+1)
	step := roundStep(most)
	top := step * max(math.Ceil(most/step), 1)
	x := func(bytes int) float64 {
		return curvesLeft + (math.Log2(float64(bytes))-low)/(high-low)*curvesWide
	}
	y := func(bus float64) float64 { return curvesTop + curvesHigh*(1-bus/top) }
	var b strings.Builder
	width, height := curvesLeft+curvesWide+curvesRight, curvesTop+curvesHigh+curvesFoot
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">%s<rect width="100%%" height="100%%" fill="white"/>`+"\n", width, height, width, height, curveStyle)
	fmt.Fprintf(&b, `<text class="title" x="16" y="26">%s: bus bandwidth, GB/s</text>`+"\n", html.EscapeString(title))
	for at := 0.0; at <= top+step/2; at += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text class="tick y" x="%.1f" y="%.1f">%.4g</text>`+"\n",
			curvesLeft, y(at), curvesLeft+curvesWide, y(at), curvesLeft-8, y(at)+4, at)
	}
	every := math.Ceil((high - low) / 8)
	for at := low; at <= high; at += every {
		bytes := 1 << int(at)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text class="tick x" x="%.1f" y="%.1f">%s</text>`+"\n",
			x(bytes), curvesTop, x(bytes), curvesTop+curvesHigh, x(bytes), curvesTop+curvesHigh+18, size(bytes))
	}
	fmt.Fprintf(&b, `<text class="x" x="%.0f" y="%.0f">size</text>`+"\n", curvesLeft+curvesWide/2, height-14)
	at := 16.0
	for i, c := range all {
		class := fmt.Sprintf("c%d", i%4)
		var points []string
		var marks strings.Builder
		for _, p := range c.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.bytes), y(p.bus)))
			fmt.Fprintf(&marks, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"><title>%s of %s: %.3g GB/s</title></circle>`+"\n", class, x(p.bytes), y(p.bus), html.EscapeString(c.name), size(p.bytes), p.bus)
		}
		fmt.Fprintf(&b, `<polyline class="%s" points="%s"/>`+"\n%s", class, strings.Join(points, " "), marks.String())
		fmt.Fprintf(&b, `<line class="%s" stroke-width="3" x1="%.0f" y1="48" x2="%.0f" y2="48"/><text x="%.0f" y="52">%s</text>`+"\n", class, at, at+24, at+32, html.EscapeString(c.name))
		at += 32 + barLetter*float64(len(c.name)) + 26
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
