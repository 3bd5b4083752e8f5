package main

import (
	"fmt"
	"strconv"
	"strings"
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

// curve measures c: in every round both go over all sizes.
func (b *bench) curve(c curve) (curve, error) {
	if err := b.on(fast); err != nil {
		return c, err
	}
	sizes := curveSizes()
	var list []string
	for _, s := range sizes {
		list = append(list, strconv.Itoa(s))
	}
	args := []string{"--sizes", strings.Join(list, ","), "--seconds", fmt.Sprint(b.o.seconds / 5)}
	runs := make([][]pair, len(sizes))
	for n := range b.o.runs {
		b.progress("%s, run %d of %d", c.name, n+1, b.o.runs)
		var limit, value []sample
		others, err := b.round(func() (err error) {
			if limit, err = b.limit(0, c.work, args...); err != nil {
				return err
			}
			value, err = b.ours(c.work, args...)
			return err
		})
		if err != nil {
			return c, err
		}
		if len(limit) != len(sizes) || len(value) != len(sizes) {
			return c, fmt.Errorf("%d and %d results for %d sizes", len(limit), len(value), len(sizes))
		}
		for i := range sizes {
			runs[i] = append(runs[i], pair{Value: c.of(value[i]), Limit: c.of(limit[i]), Others: others})
		}
	}
	for i, size := range sizes {
		c.Points = append(c.Points, point{size, pair{
			Value:  median(runs[i], func(p pair) float64 { return p.Value }),
			Limit:  median(runs[i], func(p pair) float64 { return p.Limit }),
			Others: median(runs[i], func(p pair) float64 { return p.Others }),
		}})
	}
	return c, nil
}
