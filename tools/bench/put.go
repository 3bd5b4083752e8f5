package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// oneSided is the library for programs that do not use NCCL, beside the plugin.
const oneSided = "libncclmesh.so"

// putKey is NCCL_MESH_KEY of the ranks, and of relays between them.
const putKey = "NCCL_MESH_KEY=of the figures of one-sided transfers"

// put is what a work of one-sided transfers gives over libncclmesh, with something in its environment.
func put(of func(sample) float64, env []string, args ...string) side {
	return side{of: of, work: func(b *bench, plugin string) work { return b.put(plugin, env, args...) }}
}

func (b *bench) put(plugin string, env []string, args ...string) work {
	w := b.over(filepath.Join(filepath.Dir(plugin), oneSided), append([]string{putKey}, env...), args...)
	w.program = b.program("library")
	return w
}

// putThrough is what a work of one-sided transfers gives through relays, each a letter, that do nothing else.
func putThrough(relays string, of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, plugin string) work {
		w := b.put(plugin, relayOnly, args...)
		w.relays = b.relays(plugin, relays, putKey)
		return w
	}}
}

var putLarge = []string{"stream", "--sizes", strconv.Itoa(mib)}

// putFigures is what one-sided transfers do, beside C loops that post RDMA WRITEs. Rates are in MB/s.
func putFigures(rate func(float64) float64) []figure {
	beside := func(r row, over []link, of func(sample) float64, args ...string) figure {
		return figure{name: r.name, library: true, links: over, rows: []row{r}, ours: put(of, nil, args...), limit: loop("writes", of, args...)}
	}
	signal := func(size int) figure {
		args := []string{"signal", "--sizes", strconv.Itoa(size)}
		return beside(row{
			name: "put-signal-" + sizeName(size), about: bytesText(size) + ", putWithSignal until wait returns",
			limit: "a C loop's write until its last word is there", unit: "us", atMost: 1.5,
		}, fast, micros, args...)
	}
	flag := func(size int) figure {
		f := signal(size)
		f.name = "put-flag-" + sizeName(size)
		f.rows = []row{{name: f.name, about: "the same", limit: "a C loop's write, and one of a flag, until the flag is there", unit: "us"}}
		f.limit = loop("writes", micros, "signal", "--sizes", strconv.Itoa(size), "--flag")
		return f
	}
	two := []float64{rate(topRate / 2), rate(topRate / 2)}
	return []figure{
		beside(row{
			name: "put-one-lane-1MiB", about: fmt.Sprintf("puts of 1 MiB, a lane of %g MB/s", rate(topRate)), unit: "MB/s", atLeast: 0.97,
		}, lanes(rate(topRate)), megabytes, putLarge...),
		{
			name: "put-two-lanes-1MiB", library: true, links: lanes(two...),
			rows: []row{{
				name: "put-two-lanes-1MiB", about: fmt.Sprintf("puts of 1 MiB, lanes of %v MB/s", two), limit: "C loops over each lane alone, added up",
				unit: "MB/s", atLeast: 0.97,
			}},
			ours:  put(megabytes, nil, putLarge...),
			limit: sumOfLanes("writes", len(two), mib),
		},
		beside(row{name: "put-memory-1MiB", about: "puts of 1 MiB, as fast as memory", unit: "MB/s", atLeast: 0.97}, fast, megabytes, putLarge...),
		beside(row{
			name: "put-latency-8B", about: "a put of 8 B until the other side sees it in its memory", unit: "us", atMost: 1.3,
		}, fast, micros, "pingpong", "--sizes", "8"),
		signal(8),
		flag(8),
		signal(kib),
		flag(kib),
	}
}

// putDetours is what one-sided transfers do through another node, and over TCP.
func putDetours(rate func(float64) float64) []figure {
	cable := []string{"NCCL_MESH_TRANSPORT=rdma", "NCCL_MESH_RELAY=0"}
	tcp := []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_IFNAME==" + wireIface, "NCCL_MESH_TCP_STREAMS=1", "NCCL_MESH_TCP_CHECK=0"}
	long := append(slices.Clone(putLarge), "--seconds", "0.2") // beside the time that the last put takes through the node
	return []figure{
		{
			name: "put-relay-1MiB", library: true, links: detour("r", rate(topRate/2)), shared: true,
			rows: []row{{
				name: "put-relay-1MiB", about: fmt.Sprintf("puts of 1 MiB through one node, cables of %g MB/s", rate(topRate/2)),
				limit: "the same cable direct", unit: "MB/s", atLeast: 0.9,
			}},
			ours:  putThrough("r", megabytes, long...),
			limit: put(megabytes, cable, long...),
		},
		{
			name: "put-tcp-signal-8B", library: true, links: wire,
			rows:  []row{{name: "put-tcp-signal-8B", about: "8 B over TCP, putWithSignal until wait returns", limit: "plain sockets in C", unit: "us"}},
			ours:  put(micros, tcp, "signal", "--sizes", "8"),
			limit: overSockets(micros, "pingpong", "--sizes", "8"),
		},
		{
			name: "put-tcp-1MiB", library: true, links: wire,
			rows:  []row{{name: "put-tcp-1MiB", about: "puts of 1 MiB over TCP, one stream", limit: "plain sockets in C", unit: "MB/s"}},
			ours:  put(megabytes, tcp, putLarge...),
			limit: overSockets(megabytes, putLarge...),
		},
	}
}

// sizeName is the size of a transfer in the name of a figure.
func sizeName(n int) string {
	if n >= kib {
		return fmt.Sprintf("%dKiB", n/kib)
	}
	return fmt.Sprintf("%dB", n)
}
