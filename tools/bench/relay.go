package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

const gib = 1 << 30

// detour is a cable between a and b, and those of a way through other nodes, of one letter
// each.
func detour(relays string, rate float64) []link {
	links := []link{{a: "a", b: "b", rate: rate}}
	way := strings.Split("a"+relays+"b", "")
	for i, node := range way[1:] {
		links = append(links, link{a: way[i], b: node, rate: rate})
	}
	return links
}

// through is what a work gives over the plugin through other nodes, on which processes with
// the plugin do nothing else, and direct what it gives over the cable beside them.
func through(relays string, of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, plugin string) work {
		w := b.over(plugin, []string{"NCCL_MESH_TRANSPORT=rdma", "NCCL_MESH_RELAY=only"}, args...)
		for _, node := range strings.Split(relays, "") {
			w.relays = append(w.relays, command{node: node, program: b.driver(), beside: true, args: []string{
				"--plugin", plugin, "--rank", "0", "--nranks", "1", "--rendezvous", node + ":7779", "--work", "idle",
				"--until", filepath.Join(b.build, "bench", "never"),
			}})
		}
		return w
	}}
}

func direct(of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, plugin string) work {
		return b.over(plugin, []string{"NCCL_MESH_TRANSPORT=rdma", "NCCL_MESH_RELAY=0"}, args...)
	}}
}

// relayFigures is what lanes through other nodes carry, beside the same cable direct.
func relayFigures(rate func(float64) float64) []figure {
	const halfTop = topRate / 2
	carried := func(name, relays, about string, args ...string) figure {
		return figure{
			name: name, links: detour(relays, rate(halfTop)),
			rows:  []row{{name: name, about: fmt.Sprintf("%s, cables of %g MB/s", about, rate(halfTop)), limit: "the same cable direct", unit: "MB/s", atLeast: 0.9}},
			ours:  through(relays, megabytes, args...),
			limit: direct(megabytes, args...),
		}
	}
	late := func(name, about string, args ...string) figure {
		args = append([]string{"pingpong", "--sizes", "8"}, args...)
		return figure{
			name: name, links: detour("r", 0), shared: true,
			rows:  []row{{name: name, about: about, limit: "a C loop over one cable, twice", unit: "us", atMost: 1.5}},
			ours:  through("r", micros, args...),
			limit: loop("verbs", func(s sample) float64 { return 2 * s.Micros }, args...),
		}
	}
	large := []string{"stream", "--sizes", strconv.Itoa(mib)}
	return []figure{
		carried("relay-1MiB", "r", "1 MiB, 8 outstanding, through one node", large...),
		carried("relay-64KiB", "r", "64 KiB, 8 outstanding, through one node", "stream", "--sizes", strconv.Itoa(64*kib)),
		carried("relay-two-1MiB", "rs", "1 MiB, 8 outstanding, through two nodes", large...),
		carried("relay-both-1MiB", "r", "1 MiB, 8 outstanding each way, through one node", append(large, "--both", "--conns", "2")...),
		late("relay-latency-8B", "8 B through one node, isend to test done; both ranks on one processor, the relay on another"),
		late("relay-cold-8B", "the same after 3 ms in which nothing passed", "--pause", "3000"),
		{
			name: "relay-cpu-1MiB", links: detour("r", rate(halfTop)),
			rows: []row{{
				name: "relay-cpu-1MiB", about: "processor time that a node takes to relay a GiB, in parts of 1 MiB",
				limit: "both ranks, over the same cable direct", unit: "ms",
			}},
			ours:  through("r", func(s sample) float64 { return s.Relays / 1e6 / (s.Messages * float64(s.Size) / gib) }, large...),
			limit: direct(func(s sample) float64 { return s.CPU / 1e6 / (float64(s.Size) / gib) }, large...),
		},
	}
}
