package main

import (
	"fmt"
	"math"
	"strconv"

	"ncclmesh/tuner"
)

// A sweep is a pattern of NCCL's algorithms as the driver does it.
type sweep struct {
	work     string // of the driver
	f        tuner.Func
	a        tuner.Algo
	channels []int
}

var sweeps = []sweep{
	{"allreduce", tuner.AllReduce, tuner.Ring, []int{1, 4}},
	{"tree", tuner.AllReduce, tuner.Tree, []int{2, 4}}, // every second channel has the second tree
	{"doubling", tuner.AllGather, tuner.PAT, []int{1, 4}},
}

// tunerRate is of half a cable, in MB/s, before it is scaled: so slow that what the
// processors take, and other programs of them, is little beside it.
const tunerRate = 16

// What is swept beside the channels.
var (
	sweepSizes  = []int{256 * kib, 2 * mib}
	sweepChunks = []int{128 * kib, 512 * kib}
)

// modelled are the costs of a fabric whose cables have two halves of that rate, and
// the latency that a real cable has for its own: no kernel takes part, and what a
// message costs the processor is nothing beside it.
func modelled(half float64) tuner.Costs {
	return tuner.Costs{
		Hop: tuner.Spark.Hop * tuner.Spark.Lane / half, Lane: half, Lanes: tuner.Spark.Lanes,
		Channel: math.Inf(1), TreeRate: 1, PATRate: 1,
	}
}

// tunerFigures are what the patterns take over a triangle, beside the tuner's model.
func tunerFigures(half float64) []figure {
	costs := modelled(half)
	links := triangle(half)
	for i := range links {
		links[i].wait = int(math.Round(costs.Hop))
	}
	model := tuner.NewModel(tuner.Mesh{Nodes: 3}, costs)
	var all []figure
	for _, s := range sweeps {
		for _, channels := range s.channels {
			for _, chunk := range sweepChunks {
				all = append(all, s.figure(model, links, channels, chunk))
			}
		}
	}
	return all
}

// figure is the sizes of a sweep with those channels and chunks.
func (s sweep) figure(model *tuner.Model, links []link, channels, chunk int) figure {
	f := figure{name: s.name(channels, chunk), links: links}
	var expected []float64
	for _, size := range sweepSizes {
		f.rows = append(f.rows, row{
			name:  s.row(channels, chunk, size),
			about: fmt.Sprintf("%s of %s on 3 nodes, channels: %d, chunks of %s", s.work, bytesText(size), channels, bytesText(chunk)),
			limit: "the tuner's model", unit: "us",
		})
		how := tuner.Choice{Algo: s.a, Proto: tuner.Simple, Channels: channels}
		expected = append(expected, model.Time(s.f, how, float64(size), float64(chunk)))
	}
	f.limit = side{whole: func(*bench, string) ([]float64, error) { return expected, nil }}
	f.ours = side{whole: func(b *bench, plugin string) ([]float64, error) {
		least, most := sweepSizes[0], sweepSizes[len(sweepSizes)-1]
		rows, err := b.collective(plugin, "--work", s.work, "--min", strconv.Itoa(least), "--max", strconv.Itoa(most),
			"--factor", strconv.Itoa(most/least), "--channels", strconv.Itoa(channels), "--chunk", strconv.Itoa(chunk),
			"--iters", strconv.Itoa(max(1, int(b.o.seconds*20))))
		if err != nil {
			return nil, err
		}
		times := make([]float64, len(f.rows))
		for i := range times {
			times[i] = rows[i].Time
		}
		return times, nil
	}}
	return f
}
