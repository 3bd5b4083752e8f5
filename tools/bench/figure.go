package main

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// A figure is what one row, or a few that are measured together, say.
type figure struct {
	name  string
	links []link
	rows  []row
	// measure does one round and returns the value and limit of every row.
	measure func(b *bench) ([]pair, error)
}

// A row is one number beside its limit.
type row struct {
	name, about, unit string
	atLeast, atMost   float64 // the target of the ratio; 0: none of that kind
}

// A pair is a value and its limit, of one round.
type pair struct {
	Value  float64 `json:"value"`
	Limit  float64 `json:"limit"`
	Others float64 `json:"others"` // share of the processors that other programs took
}

// Modelled rates in MB/s, before they are scaled.
const topRate = 256

var fast = []link{{a: "a", b: "b"}}

func lanes(rates ...float64) []link {
	var links []link
	for _, r := range rates {
		links = append(links, link{a: "a", b: "b", rate: r})
	}
	return links
}

// triangle is three nodes, a cable between each two, of two halves each.
func triangle(half float64) []link {
	var links []link
	for _, ends := range []string{"ab", "bc", "ca"} {
		l := link{a: ends[:1], b: ends[1:], rate: half}
		links = append(links, l, l)
	}
	return links
}

// figures is everything that is measured, in the order it is reported.
func figures(scale float64) []figure {
	rate := func(mb float64) float64 { return mb * scale }
	return append([]figure{
		stream("one-lane-1MiB", mib, 0.98, rate(256)),
		stream("one-lane-64KiB", 64*kib, 0.95, rate(256)),
		stream("two-lanes-1MiB", mib, 0.97, rate(128), rate(128)),
		stream("unequal-lanes-1MiB", mib, 0.95, rate(128), rate(64)),
		stream("four-lanes-4MiB", 4*mib, 0.95, rate(64), rate(64), rate(64), rate(64)),
		{
			name: "latency-8B", links: fast,
			rows: []row{{name: "latency-8B", about: "8 B, isend to test done, as fast as memory", unit: "us", atMost: 2.5}},
			measure: func(b *bench) ([]pair, error) {
				return both(b, func(s sample) float64 { return s.Micros }, "pingpong", "--sizes", "8")
			},
		},
		{
			name: "cpu-8B", links: fast,
			rows: []row{{name: "cpu-8B", about: "processor time of an 8 B message, 32 outstanding", unit: "ns", atMost: 2}},
			measure: func(b *bench) ([]pair, error) {
				return both(b, func(s sample) float64 { return s.CPU }, "stream", "--sizes", "8", "--depth", "32")
			},
		},
		{
			name: "memory-1MiB", links: fast,
			rows: []row{{name: "memory-1MiB", about: "1 MiB, 8 outstanding, as fast as memory", unit: "MB/s", atLeast: 0.95}},
			measure: func(b *bench) ([]pair, error) {
				return both(b, megabytes, "stream", "--sizes", strconv.Itoa(mib))
			},
		},
		{
			name: "allreduce-16MiB", links: triangle(rate(64)),
			rows:    []row{{name: "allreduce-16MiB", about: fmt.Sprintf("all-reduce in a triangle, busbw; cables of 2 x %g MB/s", rate(64)), unit: "MB/s", atLeast: 0.95}},
			measure: allreduce,
		},
		{
			name: "connections-64", links: lanes(rate(256)),
			rows: []row{{name: "connections-64", about: "512 KiB over 64 connections at once; limit: over 8", unit: "us", atMost: 1.25}},
			measure: func(b *bench) ([]pair, error) {
				many, err := b.ours("burst", "--sizes", strconv.Itoa(512*kib), "--conns", "64")
				if err != nil {
					return nil, err
				}
				few, err := b.ours("burst", "--sizes", strconv.Itoa(512*kib), "--conns", "8")
				if err != nil {
					return nil, err
				}
				return []pair{{Value: many[0].Micros, Limit: few[0].Micros}}, nil
			},
		},
		{
			name: "setup-256", links: fast,
			rows: []row{
				{name: "setup-256", about: "256 connections set up at once", unit: "s", atMost: 1},
				{name: "setup-256-memory", about: "memory of a connection, all its rings used", unit: "KiB", atMost: 1},
				{name: "setup-256-queue-pair", about: "and of its queue pair, by the C loop", unit: "KiB"},
			},
			measure: setup,
		},
	}, tcpFigures()...)
}

func megabytes(s sample) float64 { return s.Rate / 1e6 }

// both measures the loop and the plugin alike.
func both(b *bench, of func(sample) float64, work string, args ...string) ([]pair, error) {
	limit, err := b.limit(0, work, args...)
	if err != nil {
		return nil, err
	}
	value, err := b.ours(work, args...)
	if err != nil {
		return nil, err
	}
	return []pair{{Value: of(value[0]), Limit: of(limit[0])}}, nil
}

// stream is the figure of messages of one size over lanes of those rates. Its
// limit is what C loops get over the lanes, each alone, added up.
func stream(name string, size int, target float64, rates ...float64) figure {
	links := lanes(rates...)
	return figure{
		name: name, links: links,
		rows: []row{{name: name, about: fmt.Sprintf("%s, 8 outstanding, lanes of %v MB/s", bytesText(size), rates), unit: "MB/s", atLeast: target}},
		measure: func(b *bench) ([]pair, error) {
			limit, err := b.sumOfLanes(len(rates), size)
			if err != nil {
				return nil, err
			}
			value, err := b.ours("stream", "--sizes", strconv.Itoa(size))
			if err != nil {
				return nil, err
			}
			return []pair{{Value: megabytes(value[0]), Limit: limit}}, nil
		},
	}
}

// sumOfLanes is what C loops get over the first n lanes between a and b, in MB/s.
func (b *bench) sumOfLanes(n, size int) (float64, error) {
	var sum float64
	for lane := range n {
		s, err := b.limit(lane, "stream", "--sizes", strconv.Itoa(size))
		if err != nil {
			return 0, err
		}
		sum += megabytes(s[0])
	}
	return sum, nil
}

// allreduce has the driver do one, in the ring that NCCL makes of a triangle.
func allreduce(b *bench) ([]pair, error) {
	cable, err := b.sumOfLanes(2, mib)
	if err != nil {
		return nil, err
	}
	iters := max(1, int(b.o.seconds*10))
	var cmds []command
	for rank, node := range []string{"a", "b", "c"} {
		cmds = append(cmds, command{node, b.driver(), []string{
			"--plugin", b.plugin(), "--rank", strconv.Itoa(rank), "--nranks", "3", "--rendezvous", driverAt,
			"--work", "allreduce", "--min", "16M", "--max", "16M", "--chunk", "512K", "--iters", strconv.Itoa(iters),
			"--check", "once", "--json", "-",
		}, nil})
	}
	b.runs++
	out, err := b.together(cmds)
	if err != nil {
		return nil, err
	}
	var report struct {
		Results []struct {
			BusBW float64 `json:"busbw"` // GB/s
		} `json:"results"`
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Results) == 0 {
		return nil, fmt.Errorf("netdriver printed %q: %w", out, err)
	}
	return []pair{{Value: report.Results[0].BusBW * 1e3, Limit: cable}}, nil
}

// setup opens connections. What the loop's processes grow by is taken to be the
// queue pairs'; the larger of the two halves counts.
func setup(b *bench) ([]pair, error) {
	const (
		most       = 1.0 // s
		mostMemory = 300 // KiB
	)
	loop, err := b.limit(0, "setup", "--conns", "256")
	if err != nil {
		return nil, err
	}
	own, err := b.ours("setup", "--conns", "256")
	if err != nil {
		return nil, err
	}
	queues := max(loop[0].SendBytes, loop[0].RecvBytes)
	memory := max(own[0].SendBytes-loop[0].SendBytes, own[0].RecvBytes-loop[0].RecvBytes)
	return []pair{
		{Value: own[0].Seconds, Limit: most},
		{Value: memory / kib, Limit: mostMemory},
		{Value: queues / kib, Limit: queues / kib},
	}, nil
}

// figure measures f in all its rounds.
func (b *bench) figure(f figure) ([]result, error) {
	if err := b.on(f.links); err != nil {
		return nil, err
	}
	rs := make([]result, len(f.rows))
	for i, r := range f.rows {
		rs[i] = result{Name: r.name, About: r.about, Unit: r.unit, AtLeast: r.atLeast, AtMost: r.atMost}
	}
	for n := range b.o.runs {
		b.progress("%s, run %d of %d", f.name, n+1, b.o.runs)
		pairs, others, err := round(b, func() ([]pair, error) { return f.measure(b) })
		if err != nil {
			return nil, err
		}
		for i, p := range pairs {
			p.Others = others
			rs[i].Runs = append(rs[i].Runs, p)
		}
	}
	for i := range rs {
		rs[i].settle()
	}
	b.progress("")
	for _, r := range rs {
		fmt.Println(r.line())
	}
	return rs, nil
}

// notReady is the figure of all runs.
func (b *bench) notReady() result {
	r := result{
		Name: "receiver-not-ready", About: fmt.Sprintf("events in %d runs of the plugin, each of which would end its run", b.runs),
		Unit: "events", Runs: []pair{{Value: float64(b.rnr)}}, Zero: true,
	}
	r.settle()
	b.progress("")
	fmt.Println(r.line())
	return r
}

func bytesText(n int) string {
	switch {
	case n >= mib:
		return fmt.Sprintf("%d MiB", n/mib)
	case n >= kib:
		return fmt.Sprintf("%d KiB", n/kib)
	}
	return fmt.Sprintf("%d B", n)
}
