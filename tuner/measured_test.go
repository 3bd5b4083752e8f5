package tuner

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// What may be between the model and what was measured.
const (
	// growth: of the time that a larger size takes more.
	leastGrowth, mostGrowth = 0.6, 1.2
	// start, in hops: an operation's first grants cross the cables before its data, and
	// its processes wake up. On real machines that is in Base and Step, which are fitted.
	mostStart = 12
)

// The model against what make bench measured of the driver's patterns on a triangle
// of modelled cables, where no kernel takes part: ring, trees and doubling, over
// channels, chunks and sizes.
func TestMeasured(t *testing.T) {
	costs, sweeps := measured(t)
	model := func(s sweep, bytes float64) float64 {
		return NewModel(Mesh{Nodes: 3}, costs).Time(s.f, Choice{s.a, Simple, s.channels}, bytes, s.chunk)
	}
	algorithms := map[Algo]bool{}
	for s, took := range sweeps {
		algorithms[s.a] = true
		least, most := math.Inf(1), 0.0
		for bytes := range took {
			least, most = min(least, bytes), max(most, bytes)
		}
		if growth := (took[most] - took[least]) / (model(s, most) - model(s, least)); !(growth >= leastGrowth && growth <= mostGrowth) {
			t.Errorf("%+v: from %g to %g bytes it takes %.2f times as much more as the model says", s, least, most, growth)
		}
		if start := (took[least] - model(s, least)) / costs.Hop; start < 0 || start > mostStart {
			t.Errorf("%+v: %g bytes take %.1f hops more than the model's %.0f µs", s, least, start, model(s, least))
		}
	}
	if len(algorithms) != 3 {
		t.Errorf("measured are %v, want all three", algorithms)
	}
}

// A sweep is a pattern with its channels and chunks.
type sweep struct {
	f        Func
	a        Algo
	channels int
	chunk    float64
}

// measured reads the table: the fabric's costs, and µs by size.
func measured(t *testing.T) (Costs, map[sweep]map[float64]float64) {
	t.Helper()
	f, err := os.Open("../docs/tuner.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	costs := Costs{Lanes: 2, Channel: math.Inf(1), TreeRate: 1, PATRate: 1}
	patterns := map[string]key{"AllReduce Ring": {AllReduce, Ring}, "AllReduce Tree": {AllReduce, Tree}, "AllGather PAT": {AllGather, PAT}}
	sweeps := map[sweep]map[float64]float64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "#":
		case "lane":
			_, err = fmt.Sscan(rest, &costs.Lane)
		case "hop":
			_, err = fmt.Sscan(rest, &costs.Hop)
		default:
			var operation, algorithm string
			var s sweep
			var bytes, took float64
			_, err = fmt.Sscan(line, &operation, &algorithm, &s.channels, &s.chunk, &bytes, &took)
			k, known := patterns[operation+" "+algorithm]
			if !known {
				t.Fatalf("%q: no such pattern", line)
			}
			s.f, s.a = k.f, k.a
			if sweeps[s] == nil {
				sweeps[s] = map[float64]float64{}
			}
			sweeps[s][bytes] = took
		}
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return costs, sweeps
}
