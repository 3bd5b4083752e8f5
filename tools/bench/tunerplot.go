package main

import (
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"ncclmesh/tuner"
)

const tunerPlot = "tuner" // its name, and the file's

// tunerNodes is the mesh drawn.
const tunerNodes = 3

// tunerLines are times over size by the tuner's model: of what the tuner chooses, and
// of what NCCL does, which has as many channels as it found room for.
func tunerLines(sizes []int) map[string][]float64 {
	model := tuner.NewModel(tuner.Mesh{Nodes: tunerNodes}, tuner.Spark)
	table := tuner.NewTable(model)
	rate := float64(tuner.Spark.Lanes) * tuner.Spark.Lane / 1000
	lines := map[string][]float64{}
	for _, size := range sizes {
		add := func(name string, how tuner.Choice) {
			lines[name] = append(lines[name], model.Time(tuner.AllReduce, how, float64(size), tuner.Chunk))
		}
		add(oursLine, table.Choices[tuner.AllReduce][tuner.Class(uint64(size))][0])
		add(few, ncclChoice(tunerNodes, 16, rate, float64(size)))
		add(many, ncclChoice(tunerNodes, 64, rate, float64(size)))
	}
	return lines
}

const (
	oursLine = "chosen by the tuner"
	few      = "chosen by NCCL, of 16 channels"
	many     = "chosen by NCCL, of 64 channels"
)

// tunerSizes are 1 KiB to 1 GiB, four to a power of two.
func tunerSizes() []int {
	var sizes []int
	for class := tuner.Class(kib); class <= tuner.Class(1<<30); class++ {
		sizes = append(sizes, int(tuner.Least(class)))
	}
	return sizes
}

// drawTuner writes <dir>/tuner.svg.
func drawTuner(dir string) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("All-reduce on %d nodes, as the model of the tuner has it", tunerNodes)
	p.X.Label.Text, p.Y.Label.Text = "size", "us"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.X.Tick.Marker = plot.TickerFunc(func(_, _ float64) []plot.Tick {
		var ticks []plot.Tick
		for size := kib; size <= 1<<30; size *= 32 {
			ticks = append(ticks, plot.Tick{Value: float64(size), Label: bytesText(size)})
		}
		return ticks
	})
	p.Legend.Left, p.Legend.Top, p.Legend.Padding = true, true, vg.Points(2)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xf0}
	p.Add(grid)
	sizes := tunerSizes()
	lines := tunerLines(sizes)
	for _, s := range []struct {
		name   string
		colour color.Color
		dashes []vg.Length
	}{
		{many, limitColour, []vg.Length{vg.Points(2), vg.Points(2)}},
		{few, limitColour, nil},
		{oursLine, oursColour, nil},
	} {
		xys := make(plotter.XYs, len(sizes))
		for i, size := range sizes {
			xys[i] = plotter.XY{X: float64(size), Y: lines[s.name][i]}
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = s.colour, vg.Points(1.5), s.dashes
		p.Add(line)
		p.Legend.Add(s.name, line)
	}
	return p.Save(16*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, tunerPlot+".svg"))
}
