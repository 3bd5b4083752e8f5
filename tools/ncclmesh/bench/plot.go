package bench

import (
	"errors"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// colours tell series apart in black and white too.
var colours = []color.Color{
	color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff},
	color.RGBA{R: 0xd9, G: 0x8a, B: 0x29, A: 0xff},
	color.RGBA{R: 0x5a, G: 0x9e, B: 0x5f, A: 0xff},
	color.Gray{Y: 0xc0},
}

var errNothing = errors.New("nothing was measured: there is nothing to draw")

func write(p *plot.Plot, width vg.Length, w io.Writer) error {
	c, err := p.WriterTo(width, 9*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	_, err = c.WriteTo(w)
	return err
}

// WriteSVG draws bars: of each link one way, the other, both, and what is allowed one way.
func (r *LinkReport) WriteSVG(w io.Writer) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "What cables carry", "Gb/s"
	p.Legend.Top = true
	var names []string
	var values [4]plotter.Values
	for _, l := range r.Links {
		if l.Error == "" {
			names = append(names, l.Ends[0]+"–"+l.Ends[1]+"\n"+l.Over)
			for i, v := range []float64{l.Forth, l.Back, l.Both, l.Allowed} {
				values[i] = append(values[i], v)
			}
		}
	}
	if len(names) == 0 {
		return errNothing
	}
	const width = 10
	for i, name := range []string{"one way", "the other way", "both ways at once", "allowed one way"} {
		bars, err := plotter.NewBarChart(values[i], vg.Points(width))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colours[i], 0
		bars.Offset = vg.Points(width * (float64(i) - 1.5))
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.Y.Min, p.Y.Max = 0, 1.35*p.Y.Max // room for the legend
	return write(p, vg.Length(max(12, 4*len(names)))*vg.Centimeter, w)
}

// A curve is bus bandwidth by size.
type curve struct {
	name   string
	points plotter.XYs
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
	last.points = append(last.points, plotter.XY{X: float64(bytes), Y: bus})
	return all
}

func drawCurves(title string, all []curve, w io.Writer) error {
	if len(all) == 0 {
		return errNothing
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "bytes", "bus bandwidth, GB/s"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, c := range all {
		line, marks, err := plotter.NewLinePoints(c.points)
		if err != nil {
			return err
		}
		colour := colours[i%len(colours)]
		line.Color, marks.Color, line.Width = colour, colour, vg.Points(1.5)
		p.Add(line, marks)
		p.Legend.Add(c.name, line, marks)
	}
	p.Y.Min = 0
	if p.X.Min == p.X.Max { // a scale needs two ends
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}
	return write(p, 16*vg.Centimeter, w)
}
