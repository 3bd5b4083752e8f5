package main

import (
	"fmt"
	"strconv"
)

// A curve is a quantity over the size of a message, the plugin's and the limit's.
type curve struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	Unit   string  `json:"unit"`
	Points []point `json:"points"`

	name string
	work string
	of   func(sample) float64
}

type point struct {
	Size int `json:"size"`
	pair
}

// curveSizes are the sizes drawn: 8 B to 4 MiB.
func curveSizes() []int {
	var sizes []int
	for size := 8; size <= 4*mib; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

func curves() []curve {
	all := []curve{
		{
			Name: "bandwidth", Title: "Bandwidth, 8 messages outstanding, link as fast as memory", Unit: "MB/s",
			work: "stream", of: megabytes,
		},
		{
			Name: "latency", Title: "Latency, isend to test done, link as fast as memory", Unit: "us",
			work: "pingpong", of: func(s sample) float64 { return s.Micros },
		},
	}
	for i := range all {
		all[i].name = "curve-" + all[i].Name
	}
	return all
}

// curve measures c, each size by itself.
func (b *bench) curve(c curve) (curve, error) {
	if err := b.on(fast); err != nil {
		return c, err
	}
	for _, size := range curveSizes() {
		var runs []pair
		for n := range b.o.runs {
			b.progress("%s, %s, run %d of %d", c.name, bytesText(size), n+1, b.o.runs)
			pairs, others, err := round(b, func() ([]pair, error) {
				return both(b, c.of, c.work, "--sizes", strconv.Itoa(size), "--seconds", fmt.Sprint(b.o.seconds/5))
			})
			if err != nil {
				return c, err
			}
			runs = append(runs, pair{pairs[0].Value, pairs[0].Limit, others})
		}
		c.Points = append(c.Points, point{size, pair{
			Value:  median(runs, func(p pair) float64 { return p.Value }),
			Limit:  median(runs, func(p pair) float64 { return p.Limit }),
			Others: median(runs, func(p pair) float64 { return p.Others }),
		}})
	}
	return c, nil
}
