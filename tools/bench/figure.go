package main

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// A figure is what one row, or a few that are measured together, say. It has two
// sides, which are measured in turn.
type figure struct {
	name   string
	links  []link
	shared bool // the ranks share a processor: what counts is what it costs, not what it takes
	netIB  bool // its limit is NCCL\'s own transport
	rows   []row
	ours   side // over a plugin
	limit  side // what it is measured beside

	library bool // it is of libncclmesh, which a base may not have
}

// A side gives a number for each row: what a work says, which can be measured in
// slices, or what whole returns.
type side struct {
	work  func(b *bench, plugin string) work
	of    func(sample) float64
	whole func(b *bench, plugin string) ([]float64, error)
}

// A row is one number of a figure.
type row struct {
	name, about, unit string
	limit             string  // what that is; none: a C loop that posts the same writes
	atLeast, atMost   float64 // the target of the ratio; 0: none of that kind
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
func figures(scale, seconds float64) []figure {
	rate := func(mb float64) float64 { return mb * scale }
	all := []figure{
		stream("one-lane-1MiB", mib, 0.98, rate(256)),
		stream("one-lane-64KiB", 64*kib, 0.95, rate(256)),
		stream("two-lanes-1MiB", mib, 0.97, rate(128), rate(128)),
		stream("unequal-lanes-1MiB", mib, 0.95, rate(128), rate(64)),
		stream("four-lanes-4MiB", 4*mib, 0.95, rate(64), rate(64), rate(64), rate(64)),
		{
			name: "latency-8B", links: fast,
			rows:  []row{{name: "latency-8B", about: "8 B, isend to test done, as fast as memory", unit: "us", atMost: 2.5}},
			ours:  ours(micros, "pingpong", "--sizes", "8"),
			limit: loop("verbs", micros, "pingpong", "--sizes", "8"),
		},
	}
	all = append(all, relayFigures(rate)...)
	all = append(all, besideNetIB()...)
	all = append(all, costs()...)
	all = append(all, []figure{
		{
			name: "memory-1MiB", links: fast,
			rows:  []row{{name: "memory-1MiB", about: "1 MiB, 8 outstanding, as fast as memory", unit: "MB/s", atLeast: 0.95}},
			ours:  ours(megabytes, "stream", "--sizes", strconv.Itoa(mib)),
			limit: loop("verbs", megabytes, "stream", "--sizes", strconv.Itoa(mib)),
		},
		{
			name: "allreduce-16MiB", links: triangle(rate(64)),
			rows: []row{{
				name: "allreduce-16MiB", about: fmt.Sprintf("all-reduce in a triangle, busbw; cables of 2 x %g MB/s", rate(64)),
				limit: "C loops over the halves of a cable", unit: "MB/s", atLeast: 0.95,
			}},
			ours:  side{whole: allreduce},
			limit: sumOfLanes("verbs", 2, mib),
		},
		{
			name: "connections-64", links: lanes(rate(256)),
			rows:  []row{{name: "connections-64", about: "512 KiB over 64 connections at once", limit: "over 8", unit: "us", atMost: 1.25}},
			ours:  ours(micros, "burst", "--sizes", strconv.Itoa(512*kib), "--conns", "64"),
			limit: ours(micros, "burst", "--sizes", strconv.Itoa(512*kib), "--conns", "8"),
		},
		{
			name: "setup-256", links: fast,
			rows: []row{
				{name: "setup-256", about: "256 connections set up at once", limit: "a second", unit: "s", atMost: 1},
				{name: "setup-256-memory", about: "memory of a connection, all its rings used", limit: "its queue pair, by the C loop, and 300 KiB", unit: "KiB", atMost: 1},
			},
			ours:  side{whole: setup},
			limit: side{whole: setupLimit},
		},
	}...)
	all = append(all, outages(rate(128))...)
	all = append(all, putFigures(rate)...)
	all = append(all, putDetours(rate)...)
	all = append(all, tunerFigures(rate(tunerRate))...)
	return append(all, tcpFigures(seconds)...)
}

// besideNetIB is what messages take beside NCCL's own transport, over one cable: where a processor's time counts both ranks are on it.
func besideNetIB() []figure {
	beside := func(shared bool, of func(sample) float64, args []string, r row) figure {
		r.limit = "NCCL's own net_ib"
		return figure{name: r.name, links: fast, shared: shared, netIB: true, rows: []row{r}, ours: ours(of, args...), limit: netIB(of, args...)}
	}
	large := func(name string, size int, least float64) figure {
		return beside(true, perCore, []string{"stream", "--turns", "--sizes", strconv.Itoa(size)}, row{
			name: name, about: bytesText(size) + ", 8 outstanding, by the processor time that they take", unit: "MB/s", atLeast: least,
		})
	}
	vain := []string{"vain", "--depth", "1"}
	return []figure{
		beside(true, func(s sample) float64 { return s.Isend }, vain, row{
			name: "isend-in-vain", about: "isend without a receive", unit: "ns", atMost: 1.2,
		}),
		beside(true, func(s sample) float64 { return s.Test }, vain, row{
			name: "test-in-vain", about: "test of one receive that nothing has come for", unit: "ns", atMost: 2,
		}),
		beside(true, cost, []string{"stream", "--turns", "--sizes", "8", "--depth", "32"}, row{
			name: "calls-8B", about: "processor time of an 8 B message, 32 outstanding", unit: "ns", atMost: 1.1,
		}),
		beside(true, cost, []string{"stream", "--turns", "--sizes", "8", "--depth", "2", "--conns", "16"}, row{
			name: "calls-8B-16", about: "the same, 16 connections in turn, 2 outstanding on each", unit: "ns", atMost: 1,
		}),
		large("calls-64KiB", 64*kib, 0.95),
		large("calls-1MiB", mib, 0.97),
		beside(false, micros, []string{"pingpong", "--sizes", "8"}, row{
			name: "ib-latency-8B", about: "8 B, isend to test done", unit: "us", atMost: 1,
		}),
		beside(false, func(s sample) float64 { return s.Micros99 }, []string{"pingpong", "--sizes", "8"}, row{
			name: "ib-latency-8B-99", about: "the same, the slowest of a hundred", unit: "us", atMost: 1.1,
		}),
		{
			name: "ib-setup-64", links: fast, netIB: true,
			rows:  []row{{name: "ib-setup-64", about: "64 connections set up at once", limit: "NCCL's own net_ib", unit: "ms", atMost: 0.9}},
			ours:  side{whole: setup64},
			limit: side{whole: func(b *bench, _ string) ([]float64, error) { return setup64(b, b.ib) }},
		},
	}
}

// setup64 opens connections.
func setup64(b *bench, plugin string) ([]float64, error) {
	s, err := b.run(b.over(plugin, nil, "setup", "--conns", "64"))
	return []float64{s.Seconds * 1e3}, err
}

// costs is what messages take of processors, beside what their writes do.
func costs() []figure {
	small := []string{"stream", "--turns", "--sizes", "8", "--depth", "32"}
	large := []string{"stream", "--turns", "--sizes", strconv.Itoa(64 * kib)}
	return []figure{
		{
			name: "cpu-8B", links: fast, shared: true,
			rows:  []row{{name: "cpu-8B", about: "processor time of an 8 B message, 32 outstanding", unit: "ns", atMost: 2}},
			ours:  ours(cost, small...),
			limit: loop("verbs", cost, small...),
		},
		{
			name: "cpu-four-lanes-64KiB", links: lanes(0, 0, 0, 0), shared: true,
			rows: []row{{
				name: "cpu-four-lanes-64KiB", about: "processor time of a 64 KiB message cut over four lanes, 8 outstanding",
				limit: "a C loop over one lane", unit: "ns",
			}},
			ours:  ours(cost, large...),
			limit: loop("verbs", cost, large...),
		},
	}
}

func megabytes(s sample) float64 { return s.Rate / 1e6 }
func micros(s sample) float64    { return s.Micros }
func cost(s sample) float64      { return s.CPU }
func perCore(s sample) float64   { return float64(s.Size) / s.CPU * 1e3 } // MB in a second of one

// ours is what a work gives over the plugin, and loop what it gives as a C loop, one of
// the programs, over the first lane.
func ours(of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, plugin string) work { return b.over(plugin, nil, args...) }}
}

func loop(program string, of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, _ string) work { return b.loop(program, 0, args...) }}
}

// netIB is what a work gives over NCCL's own transport, for a figure that says so.
func netIB(of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, _ string) work { return b.over(b.ib, nil, args...) }}
}

// stream is the figure of messages of one size over lanes of those rates. Its
// limit is what C loops get over the lanes, each alone, added up.
func stream(name string, size int, target float64, rates ...float64) figure {
	return figure{
		name: name, links: lanes(rates...),
		rows:  []row{{name: name, about: fmt.Sprintf("%s, 8 outstanding, lanes of %v MB/s", bytesText(size), rates), unit: "MB/s", atLeast: target}},
		ours:  ours(megabytes, "stream", "--sizes", strconv.Itoa(size)),
		limit: sumOfLanes("verbs", len(rates), size),
	}
}

// sumOfLanes is what C loops, of one of the programs, get over the first n lanes between a and b, in MB/s.
func sumOfLanes(program string, n, size int) side {
	return side{whole: func(b *bench, _ string) ([]float64, error) {
		var sum float64
		for lane := range n {
			s, err := b.run(b.loop(program, lane, "stream", "--sizes", strconv.Itoa(size)))
			if err != nil {
				return nil, err
			}
			sum += megabytes(s)
		}
		return []float64{sum}, nil
	}}
}

// allreduce has the driver do one, in the ring that NCCL makes of a triangle.
func allreduce(b *bench, plugin string) ([]float64, error) {
	iters := max(1, int(b.o.seconds*10))
	rows, err := b.collective(plugin, "--work", "allreduce", "--min", "16M", "--max", "16M", "--chunk", "512K",
		"--iters", strconv.Itoa(iters), "--check", "once")
	if err != nil {
		return nil, err
	}
	return []float64{rows[0].BusBW * 1e3}, nil
}

// A collected is a row of the driver's report.
type collected struct {
	BusBW float64 `json:"busbw"` // GB/s
	Time  float64 `json:"time_us"`
}

// collective has the driver do one on the three nodes of a triangle.
func (b *bench) collective(plugin string, args ...string) ([]collected, error) {
	var cmds []command
	for rank, node := range []string{"a", "b", "c"} {
		cmds = append(cmds, command{node: node, program: b.driver(), args: append([]string{
			"--plugin", plugin, "--rank", strconv.Itoa(rank), "--nranks", "3", "--rendezvous", driverAt, "--json", "-",
		}, args...)})
	}
	b.runs++
	out, err := b.together(cmds)
	if err != nil {
		return nil, err
	}
	var report struct {
		Results []collected `json:"results"`
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Results) == 0 {
		return nil, fmt.Errorf("netdriver printed %q: %w", out, err)
	}
	return report.Results, nil
}

// setup opens connections: how long that takes, and what it takes of memory.
func setup(b *bench, plugin string) ([]float64, error) {
	s, err := b.run(b.over(plugin, nil, "setup", "--conns", "256"))
	return []float64{s.Seconds, s.grown() / kib}, err
}

// setupLimit is a second, and what queue pairs take and some more. The processes of
// the loop are taken to grow by the queue pairs.
func setupLimit(b *bench, _ string) ([]float64, error) {
	const (
		seconds = 1
		beside  = 300 // KiB
	)
	s, err := b.run(b.loop("verbs", 0, "setup", "--conns", "256"))
	return []float64{seconds, s.grown()/kib + beside}, err
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
