package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// wire is a cable for TCP: jumbo frames, as between machines that are cabled
// directly.
var wire = []link{{a: "a", b: "b", mtu: 9000}}

// Where the two ends of the wire are.
const (
	wireIface  = "p0"
	wireServer = "192.168.1.2" // of node b
)

// tcpFigures is what is measured of TCP lanes.
func tcpFigures(seconds float64) []figure {
	small := []string{"stream", "--turns", "--sizes", "8", "--depth", "32"}
	const sockets = "plain sockets in C"
	latency := func(check bool, r row) figure {
		r.limit, r.unit = sockets, "us"
		return figure{
			name: r.name, links: wire, rows: []row{r},
			ours:  overTCP(1, check, micros, "pingpong", "--sizes", "8"),
			limit: overSockets(micros, "pingpong", "--sizes", "8"),
		}
	}
	all := []figure{
		latency(false, row{name: "tcp-latency-8B", about: "8 B over TCP, isend to test done", atMost: 1.3}),
		latency(true, row{name: "tcp-check-latency-8B", about: "the same, checked"}), // plain sockets are not: no target
		{
			name: "tcp-cpu-8B", links: wire, shared: true,
			rows:  []row{{name: "tcp-cpu-8B", about: "processor time of an 8 B message over TCP, 32 outstanding", limit: sockets, unit: "ns"}},
			ours:  overTCP(1, false, cost, small...),
			limit: overSockets(cost, small...),
		},
	}
	for _, size := range []int{mib, 64 * kib} {
		for _, streams := range []int{1, 4} {
			all = append(all, tcpStream(size, streams, false, seconds), tcpStream(size, streams, true, seconds))
		}
	}
	return all
}

// tcpStream is the figure of messages of one size over TCP; iperf3 with as many
// streams is its limit, which knows whole seconds only, and checks nothing: where
// lanes are checked there is no target.
func tcpStream(size, streams int, check bool, seconds float64) figure {
	r := row{
		name: fmt.Sprintf("tcp-%dKiB-%d", size/kib, streams), about: fmt.Sprintf("%s over TCP, 8 outstanding, streams: %d", bytesText(size), streams),
		limit: "iperf3 with as many", unit: "MB/s", atLeast: 0.95,
	}
	if check {
		r.name = fmt.Sprintf("tcp-check-%dKiB-%d", size/kib, streams)
		r.about, r.atLeast = "the same, checked", 0
	}
	whole := int(math.Ceil(seconds))
	return figure{
		name: r.name, links: wire, rows: []row{r},
		ours:  overTCP(streams, check, megabytes, "stream", "--sizes", strconv.Itoa(size), "--seconds", strconv.Itoa(whole)),
		limit: iperf(size, streams, whole),
	}
}

// overTCP is what a work gives over the plugin's TCP lanes, checked or not, and overSockets what it
// gives over plain sockets.
func overTCP(streams int, check bool, of func(sample) float64, args ...string) side {
	env := []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_IFNAME==" + wireIface, fmt.Sprintf("NCCL_MESH_TCP_STREAMS=%d", streams)}
	if check {
		env = append(env, "NCCL_MESH_TCP_CHECK=1")
	} else {
		env = append(env, "NCCL_MESH_TCP_CHECK=0")
	}
	return side{of: of, work: func(b *bench, plugin string) work { return b.over(plugin, env, args...) }}
}

func overSockets(of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, _ string) work {
		return work{program: b.program("tcp"), args: append([]string{"--device", wireIface, "--work"}, args...)}
	}}
}

// iperfReport is what is read of iperf3's JSON.
type iperfReport struct {
	Error string `json:"error"`
	End   struct {
		Received struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
}

// parseIperf returns the rate that iperf3 reports, in MB/s.
func parseIperf(out []byte) (float64, error) {
	var r iperfReport
	err := json.Unmarshal(out, &r)
	switch {
	case err != nil:
		return 0, fmt.Errorf("iperf3 printed %q: %w", out, err)
	case r.Error != "":
		return 0, fmt.Errorf("iperf3: %s", r.Error)
	case r.End.Received.BitsPerSecond <= 0:
		return 0, fmt.Errorf("iperf3 reported no rate: %s", out)
	}
	return r.End.Received.BitsPerSecond / 8e6, nil
}

// iperf is what iperf3 gets from a to b, in MB/s.
func iperf(size, streams, seconds int) side {
	client := meetScript + fmt.Sprintf(`meet iperf3 -J -c %s -t %d -P %d -l %d; echo "$out"`, wireServer, seconds, streams, size)
	return side{whole: func(b *bench, _ string) ([]float64, error) {
		out, err := b.together([]command{
			{node: "a", program: "sh", args: []string{"-c", client}},
			{node: "b", program: "sh", args: []string{"-c", "exec iperf3 -s -1 -B " + wireServer + " >/dev/null"}},
		})
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		rate, err := parseIperf(out)
		return []float64{rate}, err
	}}
}
