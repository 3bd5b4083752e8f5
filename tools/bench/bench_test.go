package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMesh(t *testing.T) {
	tests := []struct {
		name  string
		links []link
		want  string
	}{
		{"fast", fast, `node a
node b
port a rdma0 netdev p0 addr 192.168.1.1/24 cage q0 speed 100000M
port b rdma0 netdev p0 addr 192.168.1.2/24 cage q0 speed 100000M
link a:rdma0 b:rdma0
`},
		{"two halves", lanes(128, 64), `node a
node b
port a rdma0 netdev p0 addr 192.168.1.1/24 cage q0 speed 50000M
port b rdma0 netdev p0 addr 192.168.1.2/24 cage q0 speed 50000M
port a rdma1 netdev p1 addr 192.168.2.1/24 cage q0 speed 25000M
port b rdma1 netdev p1 addr 192.168.2.2/24 cage q0 speed 25000M
link a:rdma0 b:rdma0 rate 128MB latency 20us
link a:rdma1 b:rdma1 rate 64MB latency 20us
`},
		{"for TCP", wire, `node a
node b
port a rdma0 netdev p0 addr 192.168.1.1/24 cage q0 speed 100000M
port b rdma0 netdev p0 addr 192.168.1.2/24 cage q0 speed 100000M
link a:rdma0 b:rdma0 mtu 9000
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, meshOf(tt.links).Topology()); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
		})
	}
	if got := meshOf(triangle(64)).Topology(); strings.Count(got, "port ") != 12 || !strings.Contains(got, "link c:rdma3 a:rdma3 rate 64MB") {
		t.Errorf("triangle:\n%s", got)
	}
}

func TestResult(t *testing.T) {
	tests := []struct {
		name    string
		in      result
		line    string
		verdict verdict
	}{
		{
			"the median ratio is that of a round", result{Name: "x", Unit: "MB/s", AtLeast: 0.95, Runs: []pair{pairOf(90, 100), pairOf(190, 200), pairOf(10, 20)}},
			"bench name=x value=90 unit=MB/s limit=100 ratio=0.900 noise=0.444", "missed",
		},
		{
			"even number", result{Name: "x", Unit: "us", AtMost: 2.5, Runs: []pair{pairOf(2, 1), pairOf(4, 2)}},
			"bench name=x value=3 unit=us limit=1.5 ratio=2.000 noise=0.000", "met",
		},
		{"over", result{Name: "x", AtMost: 2, Runs: []pair{pairOf(5, 2)}}, "bench name=x value=5 unit= limit=2 ratio=2.500 noise=?", "missed"},
		{"has to be 0", result{Name: "x", Zero: true, Runs: []pair{pairOf(0, 0)}}, "bench name=x value=0 unit= limit=0 ratio=0.000 noise=?", "met"},
		{"is not 0", result{Name: "x", Zero: true, Runs: []pair{pairOf(1, 0)}}, "bench name=x value=1 unit= limit=0 ratio=0.000 noise=?", "missed"},
		{"no target", result{Name: "x", Runs: []pair{pairOf(1, 1)}}, "bench name=x value=1 unit= limit=1 ratio=1.000 noise=?", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.settle()
			if diff := cmp.Diff(tt.line, tt.in.line()); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
			if got := tt.in.verdict(); got != tt.verdict {
				t.Errorf("verdict %q, want %q", got, tt.verdict)
			}
		})
	}
}

func TestFiguresAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range figures(1, 0.5) {
		for _, r := range f.rows {
			if seen[r.name] || strings.ContainsAny(r.name, " =") || r.unit == "" || r.about == "" {
				t.Errorf("row %+v", r)
			}
			seen[r.name] = true
		}
		for _, l := range f.links {
			if l.rate > topRate {
				t.Errorf("%s: a link of %g MB/s; calibration knows of %d", f.name, l.rate, topRate)
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no figures")
	}
}

func TestWants(t *testing.T) {
	tests := []struct {
		only, name string
		want       bool
	}{
		{"", "latency-8B", true},
		{"latency", "latency-8B", true},
		{"cpu,lanes", "two-lanes-1MiB", true},
		{"cpu", "two-lanes-1MiB", false},
		{"=latency-8B", "latency-8B", true},
		{"=latency-8B", "tcp-latency-8B", false},
		{"=latency-8B,tcp", "tcp-latency-8B", true},
	}
	for _, tt := range tests {
		if got := (options{only: tt.only}).wants(tt.name); got != tt.want {
			t.Errorf("--only %q and %s: %v", tt.only, tt.name, got)
		}
	}
}

func TestDraw(t *testing.T) {
	dir := t.TempDir()
	c := curves()[0]
	for _, size := range curveSizes() {
		c.Points = append(c.Points, point{size, pairOf(float64(size)/2, float64(size))})
	}
	if err := c.draw(dir); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "bandwidth.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", c.Title, "2 MiB", "libnccl-net-mesh.so"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}

func TestPrint(t *testing.T) {
	r := result{Name: "latency-8B", About: "8 B", Unit: "us", AtMost: 2.5, Runs: []pair{pairOf(2, 1)}}
	r.settle()
	var b bytes.Buffer
	results{Figures: []result{r}}.print(&b)
	for _, want := range []string{"latency-8B", "<= 2.50", "met"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestReadLab(t *testing.T) {
	const output = " 1048576    200              612.21             600.00  		   0.000600\n" +
		"{\"size\": 1048576, \"rate\": 5.9e+08, \"cpu_ns\": 1, \"messages\": 80}\n"
	runs, err := readLab(output, perftestLimit)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]pair{pairOf(590, 600*mib/1e6)}, runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "nothing\n", output[strings.Index(output, "{"):], " 1048576 1 1 1 1\n{\n"} {
		if runs, err := readLab(bad, perftestLimit); err == nil {
			t.Errorf("%q: %v, want an error", bad, runs)
		}
	}
}

// What iperf3 3.12 prints, cut down.
const iperfOutput = `{	"start":	{"version": "iperf 3.12"}, "end": {"sum_sent": {"bits_per_second": 9e8}, "sum_received": {"bits_per_second": 8e8}}}`

func TestIperf(t *testing.T) {
	tests := []struct {
		name, out string
		want      float64
		err       string
	}{
		{"what has arrived counts", iperfOutput, 100, ""},
		{"its error", `{"start": {}, "error": "unable to connect to server"}`, 0, "unable to connect"},
		{"no rate", `{"end": {}}`, 0, "no rate"},
		{"no JSON", "sh: iperf3: not found", 0, "not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseIperf([]byte(tt.out))
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, %v; want %v, %q", got, err, tt.want, tt.err)
			}
		})
	}
	runs, err := readLab(iperfOutput+"\n{\"size\": 1048576, \"rate\": 9e+07}\n", iperfLimit)
	if diff := cmp.Diff([]pair{pairOf(90, 100)}, runs); err != nil || diff != "" {
		t.Errorf("%v; runs (-want +got):\n%s", err, diff)
	}
}

func TestParseBusy(t *testing.T) {
	const stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 1000 2000 4 5 6 7 8\ncpu1 1 0 0 1 1 0 0 0 0 0\ncpu10 100 0 0 1 1 0 0 0 0 0\nintr 1 2 3 4 5 6 7 8 9\n"
	tests := []struct {
		name, stat string
		cpus       []int
		want       time.Duration
	}{
		{"one of them", stat, []int{0}, 210 * time.Millisecond},
		{"two", stat, []int{0, 1}, 220 * time.Millisecond},
		{"none of them", stat, []int{2}, 0},
		{"an older kernel", "cpu0 1 2 3\n", []int{0}, 0},
		{"nothing", "", []int{0}, 0},
	}
	for _, tt := range tests {
		if got := parseBusy(tt.stat, tt.cpus); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestSettle(t *testing.T) {
	tests := []struct {
		name string
		in   options
		runs int
		err  string
	}{
		{"alone", options{seconds: 1}, 5, ""},
		{"beside a base", options{seconds: 1, base: "x"}, 15, ""},
		{"as told", options{seconds: 1, base: "x", runs: 5}, 5, ""},
		{"too few to tell", options{seconds: 1, base: "x", runs: 4}, 0, "--runs 5"},
		{"a quick one tells nothing", options{seconds: 1, base: "x", quick: true}, 0, "--runs 5"},
		{"machines", options{seconds: 1, base: "x", lab: true}, 0, "--lab"},
		{"no time", options{}, 0, "positive"},
	}
	for _, tt := range tests {
		o := tt.in
		err := o.settle()
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || err == nil && o.runs != tt.runs {
			t.Errorf("%s: %d runs, %v; want %d, %q", tt.name, o.runs, err, tt.runs, tt.err)
		}
	}
}
