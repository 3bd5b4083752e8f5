package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sweepTable is what the sweeps took, a line each, as package tuner's test of its
// model reads it: operation, algorithm, channels, chunk, bytes and µs, below the
// fabric's costs. "" where they were not measured.
func sweepTable(m machine, figures []result, half float64) string {
	took := map[string]result{}
	for _, f := range figures {
		took[f.Name] = f
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# make bench BENCH=\"--only tuner\", %s: the patterns of tests/netdriver on a triangle, the least of %d runs beside a load of %s.\n",
		m.Time.Format("2 January 2006"), m.Runs, m.Load)
	fmt.Fprintf(&b, "lane %g\nhop %g\n", half, modelled(half).Hop)
	lines := 0
	for _, s := range sweeps {
		for _, channels := range s.channels {
			for _, chunk := range sweepChunks {
				for _, size := range sweepSizes {
					if r, is := took[s.row(channels, chunk, size)]; is {
						fmt.Fprintf(&b, "%v %v %d %d %d %.0f\n", s.f, s.a, channels, chunk, size, r.least())
						lines++
					}
				}
			}
		}
	}
	if lines == 0 {
		return ""
	}
	return b.String()
}

// keepSweeps writes <dir>/tuner.txt, where sweeps were measured.
func keepSweeps(dir string, m machine, figures []result, half float64) error {
	table := sweepTable(m, figures, half)
	if table == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, tunerPlot+".txt"), []byte(table), 0o644)
}

// least is of the run that others disturbed least.
func (r result) least() float64 {
	least := r.Value
	for _, p := range r.Runs {
		least = min(least, p.Value)
	}
	return least
}

// row is the name of one size of a sweep.
func (s sweep) row(channels, chunk, size int) string {
	return fmt.Sprintf("%s-%dKiB", s.name(channels, chunk), size/kib)
}

func (s sweep) name(channels, chunk int) string {
	return fmt.Sprintf("tuner-%s-%dx%dKiB", s.work, channels, chunk/kib)
}
