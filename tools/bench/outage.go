package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// An outage is what befalls one of two cables, and how it ends, as fakefault is told.
type outage struct {
	fault, mend []string
	env         []string // of the ranks
	puts        bool     // by libncclmesh, each with a signal, instead of messages
}

const (
	outageSize   = 128 * kib // of a message: so small that gaps between them are short
	outageAfter  = 500 * time.Millisecond
	outageLasts  = 2500 * time.Millisecond // longer than it takes to notice it by retries
	outageWindow = 100 * time.Millisecond  // over which a rate is taken
	outageTotal  = 6                       // s, of the stream at full rate
)

// outages are what becomes of a stream over two cables of that rate when one dies.
func outages(rate float64) []figure {
	unplug, plug := []string{"unplug", "a:rdma1"}, []string{"plug", "a:rdma1"}
	of := func(name, about string, o outage, goal float64) figure {
		f := figure{name: name, links: lanes(rate, rate), ours: o.side(rate), rows: []row{
			{name: name + "-stall", about: "longest pause when one of two lanes dies, " + about, limit: "100 ms", unit: "ms", atMost: goal},
			{name: name + "-share", about: "after it, of the lane that is left", limit: "its rate", unit: "MB/s"},
			{name: name + "-return", about: "until both carry their share again, once the cable does", limit: "a second", unit: "ms"},
		}}
		if goal > 0 {
			f.rows[1].atLeast = 0.95
		}
		f.limit = side{whole: func(*bench, string) ([]float64, error) { return []float64{100, rate, 1000}, nil }}
		return f
	}
	byManagement, byCable := []string{"NCCL_SOCKET_IFNAME=mgmt0"}, []string{"NCCL_SOCKET_IFNAME==p1"}
	puts := of("put-outage-carrier", "by carrier, under puts with signals", outage{fault: unplug, mend: plug, env: byManagement, puts: true}, 1)
	puts.library = true
	return []figure{
		of("outage-carrier", "by carrier", outage{fault: unplug, mend: plug, env: byManagement}, 1),
		of("outage-session", "which the session went over", outage{fault: unplug, mend: plug, env: byCable}, 0),
		of("outage-silent", "which nothing tells of but that nothing comes through",
			outage{fault: []string{"stall", "port=a:rdma1"}, mend: []string{"clear"}, env: byManagement}, 0),
		puts,
	}
}

// side measures it over the plugin.
func (o outage) side(rate float64) side {
	return side{whole: func(b *bench, plugin string) ([]float64, error) {
		r, err := o.suffer(b, plugin)
		if err != nil {
			return nil, err
		}
		return r.figures(rate), nil
	}}
}

// A streamed is a stream with an outage in it; times are those of the monotonic clock.
type streamed struct {
	Done      []int64 `json:"done"` // when each message was
	Size      int     `json:"size"`
	out, back int64   // when the cable was
}

// suffer runs a stream, has the cable fail and mends it.
func (o outage) suffer(b *bench, plugin string) (r streamed, err error) {
	in, out, err := os.Pipe()
	if err != nil {
		return r, err
	}
	args := []string{"outage", "--sizes", strconv.Itoa(outageSize), "--depth", "16"}
	w := b.over(plugin, o.env, args...)
	if o.puts {
		w = b.put(plugin, o.env, args...)
	}
	g := b.start(w.commands(meetAt, outageTotal), nil, out)
	lines := bufio.NewReader(in)
	mended := false
	defer func() {
		if !mended {
			_, e := b.up.Fault(o.mend...)
			err = errors.Join(err, e)
		}
		err = errors.Join(err, g.wait(), in.Close())
	}()
	if err := out.Close(); err != nil { // it is the program's
		return r, err
	}
	if _, err := lines.ReadBytes('\n'); err != nil {
		return r, fmt.Errorf("the first rank ended: %w", err)
	}
	time.Sleep(outageAfter)
	r.out = monotonic()
	if _, err := b.up.Fault(o.fault...); err != nil {
		return r, err
	}
	time.Sleep(outageLasts)
	r.back, mended = monotonic(), true
	if _, err := b.up.Fault(o.mend...); err != nil {
		return r, err
	}
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("the first rank ended: %w", err)
	}
	return r, json.Unmarshal(line, &r)
}

// figures are the longest pause in ms, the rate that was left in MB/s, and after how many
// ms both lanes carried what they should; -1 if they did not.
func (r streamed) figures(rate float64) []float64 {
	var pause, from int64
	for i := 1; i < len(r.Done); i++ {
		if t := r.Done[i]; t > r.out && r.Done[i-1] < r.back && t-r.Done[i-1] > pause {
			pause, from = t-r.Done[i-1], t
		}
	}
	const full = 0.9
	back := -1.0
	for t := r.back; len(r.Done) > 0 && t+outageWindow.Nanoseconds() <= r.Done[len(r.Done)-1]; t += time.Millisecond.Nanoseconds() {
		if r.rate(t, t+outageWindow.Nanoseconds()) >= full*2*rate {
			back = float64(t-r.back) / 1e6
			break
		}
	}
	return []float64{float64(pause) / 1e6, r.rate(from+outageWindow.Nanoseconds(), r.back), back}
}

// rate is that between two times, in MB/s; 0 when there is none between.
func (r streamed) rate(from, to int64) float64 {
	if to <= from {
		return 0
	}
	n := 0
	for _, t := range r.Done {
		if t > from && t <= to {
			n++
		}
	}
	return float64(n*r.Size) / float64(to-from) * 1e3
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // which every kernel has
	return t.Nano()
}
