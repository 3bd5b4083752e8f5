package main

import (
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The colours tell the two apart in black and white too.
var (
	oursColour  = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	limitColour = color.RGBA{R: 0xd9, G: 0x8a, B: 0x29, A: 0xff}
)

// draw writes the curve as <dir>/<name>.svg.
func (c curve) draw(dir string) error {
	p := plot.New()
	p.Title.Text = c.Title
	p.X.Label.Text, p.Y.Label.Text = "size of a message", c.Unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(c.sizeTicks), plot.LogTicks{Prec: -1}
	p.Legend.Left, p.Legend.Top = true, true
	p.Legend.Padding = vg.Points(2)

	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xf0}
	p.Add(grid)

	for _, s := range []struct {
		name   string
		colour color.Color
		of     func(pair) float64
	}{
		{"C loop, same writes (the limit)", limitColour, func(p pair) float64 { return p.Beside }},
		{"libnccl-net-mesh.so", oursColour, func(p pair) float64 { return p.Value }},
	} {
		xys := make(plotter.XYs, len(c.Points))
		for i, pt := range c.Points {
			xys[i] = plotter.XY{X: float64(pt.Size), Y: s.of(pt.pair)}
		}
		line, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		line.Color, points.Color = s.colour, s.colour
		line.Width, points.Radius = vg.Points(1.5), vg.Points(2)
		p.Add(line, points)
		p.Legend.Add(s.name, line, points)
	}
	return p.Save(16*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, c.Name+".svg"))
}

// sizeTicks labels every eighth size.
func (c curve) sizeTicks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for i, size := range curveSizes() {
		if s := float64(size); s >= least && s <= most {
			t := plot.Tick{Value: s}
			if i%3 == 0 {
				t.Label = bytesText(size)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
