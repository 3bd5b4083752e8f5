package main

import (
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
			work: "pingpong", of: micros,
		},
	}
	for i := range all {
		all[i].name = "curve-" + all[i].Name
	}
	return all
}

// curve measures c, each size by itself.
func (b *bench) curve(c curve) (curve, error) {
	if err := b.on(fast, false); err != nil {
		return c, err
	}
	for _, size := range curveSizes() {
		args := []string{c.work, "--sizes", strconv.Itoa(size)}
		rows, err := b.pairs(c.name+", "+bytesText(size), contender{ours(c.of, args...), b.plugin()}, contender{loop("verbs", c.of, args...), ""}, b.o.seconds/5)
		if err != nil {
			return c, err
		}
		c.Points = append(c.Points, point{size, middle(rows[0])})
	}
	return c, nil
}
