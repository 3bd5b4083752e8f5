package nccl

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ncclmesh/tests/fabric"
)

// A Time is how long a collective took.
type Time struct {
	Order string // what it was, as the steps have it
	Bytes int
	Micro float64
}

var (
	timeLine = regexp.MustCompile(`^time (\S+ (\S+) \S+ (\d+).*) us=([0-9.]+)$`)
	initLine = regexp.MustCompile(`^init ms=([0-9.]+)$`)
	size     = map[string]int{"i8": 1, "u8": 1, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}
)

// ParseTime reads a line of the rank program's step "time".
func ParseTime(line string) (Time, bool) {
	f := timeLine.FindStringSubmatch(line)
	if f == nil {
		return Time{}, false
	}
	n, nerr := strconv.Atoi(f[3])
	us, uerr := strconv.ParseFloat(f[4], 64)
	return Time{f[1], n * size[f[2]], us}, nerr == nil && uerr == nil
}

// BusBandwidth is what an all-reduce of so many ranks makes of its cables, in MB/s.
func (t Time) BusBandwidth(ranks int) float64 {
	return 2 * float64(ranks-1) / float64(ranks) * float64(t.Bytes) / t.Micro
}

// A Row is what one version of NCCL does over one kind of lane.
type Row struct {
	Version, Lanes           string
	Table, Channels, Speed   string  // as NCCL's log has them
	Connections              int     // opened by one rank
	Init, Latency, Bandwidth float64 // ms, µs, MB/s

	// Beside NCCL's own sockets in the same round; 0 where there are none.
	LatencyRatio, BandwidthRatio float64
}

// What NCCL's log says of its choices.
var (
	tableLine   = regexp.MustCompile(`Loaded net plugin Mesh \((v\d+)\)`)
	channelLine = regexp.MustCompile(`(\d+) coll channels`)
	speedLine   = regexp.MustCompile(`Pattern 4, .*nChannels (\d+), bw ([0-9.]+)/`)
)

// Steps of a row: a communicator, 8 bytes, and what fills the cables.
var rowSteps = []string{"init", "time 200 allreduce f32 sum 2", "time 5 allreduce f32 sum 4194304", "destroy"}

// Measure makes a row. What NCCL derives depends on whose processor it finds, so that it is shown a GB10's on every machine:
// the topology file for that is written to topology.
func Measure(ctx context.Context, f *fabric.Fabric, v Version, j Job, lanes, topology string) (Row, error) {
	row := Row{Version: v.Name, Lanes: lanes, Table: "none"}
	if err := write(topology, arm); err != nil {
		return row, err
	}
	if j.Plugin != "" {
		row.Table = fmt.Sprintf("v%d", slices.Max(v.APIs)) // older versions do not log it
	}
	j.Steps = rowSteps
	j.Env = append(j.Env, "NCCL_TOPO_FILE="+topology, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET")
	results, err := j.Run(ctx, f)
	if err == nil {
		err = Failed(results)
	}
	if err != nil {
		return row, err
	}
	for line := range strings.Lines(results[0].Output) {
		row.read(strings.TrimSpace(line), len(results))
	}
	return row, nil
}

func (r *Row) read(line string, ranks int) {
	if t, ok := ParseTime(line); ok {
		if t.Bytes == 8 {
			r.Latency = t.Micro
		} else {
			r.Bandwidth = t.BusBandwidth(ranks)
		}
	}
	if f := initLine.FindStringSubmatch(line); f != nil {
		r.Init, _ = strconv.ParseFloat(f[1], 64)
	}
	if f := tableLine.FindStringSubmatch(line); f != nil {
		r.Table = f[1]
	}
	if f := channelLine.FindStringSubmatch(line); f != nil {
		r.Channels = f[1]
	}
	if f := speedLine.FindStringSubmatch(line); f != nil {
		n, _ := strconv.ParseFloat(f[1], 64)
		bw, _ := strconv.ParseFloat(f[2], 64)
		r.Speed = fmt.Sprintf("%.1f", n*bw)
	}
	if strings.Contains(line, "NET/Mesh : ") && strings.Contains(line, " conn ") && strings.Contains(line, "lane 0") {
		r.Connections++
	}
}

// Median is one row of several rounds of it, figure by figure.
func Median(rounds []Row) Row {
	row := rounds[0]
	for _, figure := range []func(*Row) *float64{
		func(r *Row) *float64 { return &r.Init }, func(r *Row) *float64 { return &r.Latency }, func(r *Row) *float64 { return &r.Bandwidth },
		func(r *Row) *float64 { return &r.LatencyRatio }, func(r *Row) *float64 { return &r.BandwidthRatio },
	} {
		var all []float64
		for i := range rounds {
			all = append(all, *figure(&rounds[i]))
		}
		slices.Sort(all)
		*figure(&row) = all[len(all)/2]
	}
	return row
}

// Facts begin the row's line: what does not change from run to run.
func (r Row) Facts() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %d |", r.Version, r.Lanes, r.Table, r.Channels, r.Speed, r.Connections)
}

// Markdown is the rows as a table; of a machine that was busy with other things
// without times, which are the scheduler's there.
func Markdown(rows []Row, busy bool) string {
	beside := func(figure, ratio float64) string {
		if ratio == 0 {
			return fmt.Sprintf("%.0f", figure)
		}
		return fmt.Sprintf("%.0f (%.2f)", figure, ratio)
	}
	var b strings.Builder
	b.WriteString("| NCCL | lanes | vtable | channels | GB/s that NCCL derives | connections of a rank | init, ms | 8 B, µs | 16 MiB busbw, MB/s |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		if busy {
			fmt.Fprintf(&b, "%s | | |\n", r.Facts())
			continue
		}
		fmt.Fprintf(&b, "%s %.0f | %s | %s |\n", r.Facts(), r.Init, beside(r.Latency, r.LatencyRatio), beside(r.Bandwidth, r.BandwidthRatio))
	}
	return b.String()
}

// The table in docs/performance.md lies between these lines.
const (
	TableBegin = "<!-- written by go run ./tests/nccl/cmd/table -page docs/performance.md -->\n"
	TableEnd   = "<!-- end -->\n"
)

// CutTable finds the table in a page.
func CutTable(page string) (before, table, after string, err error) {
	before, rest, begun := strings.Cut(page, TableBegin)
	table, after, ended := strings.Cut(rest, TableEnd)
	if !begun || !ended {
		return "", "", "", fmt.Errorf("there are no lines %q and %q", TableBegin, TableEnd)
	}
	return before, table, after, nil
}
