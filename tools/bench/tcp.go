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
func tcpFigures() []figure {
	figures := []figure{
		{
			name: "tcp-latency-8B", links: wire,
			rows: []row{{name: "tcp-latency-8B", about: "8 B over TCP, isend to test done; limit: plain sockets in C", unit: "us", atMost: 1.5}},
			measure: func(b *bench) ([]pair, error) {
				args := []string{"--sizes", "8", "--pin"}
				limit, err := b.pair(nil, b.program("tcp"), append([]string{"--work", "pingpong", "--device", wireIface}, args...))
				if err != nil {
					return nil, err
				}
				value, err := b.overTCP(1, "pingpong", args...)
				if err != nil {
					return nil, err
				}
				return []pair{{Value: value[0].Micros, Limit: limit[0].Micros}}, nil
			},
		},
	}
	for _, size := range []int{mib, 64 * kib} {
		for _, streams := range []int{1, 4} {
			figures = append(figures, tcpStream(size, streams))
		}
	}
	return figures
}

// tcpStream is the figure of messages of one size over TCP; iperf3 with as many
// streams is its limit.
func tcpStream(size, streams int) figure {
	name := fmt.Sprintf("tcp-%dKiB-%d", size/kib, streams)
	return figure{
		name: name, links: wire,
		rows: []row{{name: name, about: fmt.Sprintf("%s over TCP, 8 outstanding; limit: iperf3, streams: %d", bytesText(size), streams), unit: "MB/s", atLeast: 0.9}},
		measure: func(b *bench) ([]pair, error) {
			limit, err := b.iperf(size, streams)
			if err != nil {
				return nil, err
			}
			value, err := b.overTCP(streams, "stream", "--sizes", strconv.Itoa(size), "--seconds", fmt.Sprint(b.iperfSeconds()))
			if err != nil {
				return nil, err
			}
			return []pair{{Value: megabytes(value[0]), Limit: limit}}, nil
		},
	}
}

// overTCP runs the plugin over TCP lanes.
func (b *bench) overTCP(streams int, work string, args ...string) ([]sample, error) {
	return b.plug([]string{
		"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_IFNAME==" + wireIface, fmt.Sprintf("NCCL_MESH_TCP_STREAMS=%d", streams),
	}, work, args)
}

// iperfSeconds is how long iperf3 measures, which knows whole seconds only.
func (b *bench) iperfSeconds() int { return int(math.Ceil(b.o.seconds)) }

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

// iperf measures from a to b what iperf3 gets, in MB/s.
func (b *bench) iperf(size, streams int) (float64, error) {
	client := meetScript + fmt.Sprintf(`meet iperf3 -J -c %s -t %d -P %d -l %d; echo "$out"`, wireServer, b.iperfSeconds(), streams, size)
	out, err := b.together([]command{
		{node: "a", program: "sh", args: []string{"-c", client}},
		{node: "b", program: "sh", args: []string{"-c", "exec iperf3 -s -1 -B " + wireServer + " >/dev/null"}},
	})
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	return parseIperf(out)
}
