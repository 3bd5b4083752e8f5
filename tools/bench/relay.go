package main

import (
	"fmt"
	"path/filepath"
	"slices"
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
		w := b.over(plugin, relayOnly, args...)
		w.relays = b.relays(plugin, relays)
		return w
	}}
}

// relayOnly has ranks use no cable between them.
var relayOnly = []string{"NCCL_MESH_TRANSPORT=rdma", "NCCL_MESH_RELAY=only"}

// relays are processes with the plugin on those nodes, which do nothing but relay.
func (b *bench) relays(plugin, nodes string, env ...string) (all []command) {
	for _, node := range strings.Split(nodes, "") {
		all = append(all, command{node: node, program: b.driver(), beside: true, env: env, args: []string{
			"--plugin", plugin, "--rank", "0", "--nranks", "1", "--rendezvous", node + ":7779", "--work", "idle",
			"--until", filepath.Join(b.build, "bench", "never"),
		}})
	}
	return all
}

func direct(of func(sample) float64, args ...string) side {
	return side{of: of, work: func(b *bench, plugin string) work {
		return b.over(plugin, []string{"NCCL_MESH_TRANSPORT=rdma", "NCCL_MESH_RELAY=0"}, args...)
	}}
}

// Messages of 8 bytes through a relay that is at it, and one that has long had nothing to carry.
var (
	warm = []string{"pingpong", "--sizes", "8"}
	idle = []string{"pingpong", "--sizes", "8", "--pause", "3000"}
)

// cold is what 8 bytes take over a cable to a C loop that looks, and over one to a C loop
// that sleeps on another processor until its device wakes it: what a relay that takes no
// processor while nothing comes cannot do without.
func cold(b *bench, _ string) ([]float64, error) {
	looks, err := b.run(b.loop("verbs", 0, idle...))
	if err != nil {
		return nil, err
	}
	defer func(shared bool) { b.shared = shared }(b.shared)
	b.shared = false
	sleeps, err := b.run(b.loop("verbs", 0, append(slices.Clone(idle), "--sleep")...))
	return []float64{looks.Micros + sleeps.Micros}, err
}

// relayFigures is what lanes through other nodes carry, beside the same cable direct.
func relayFigures(rate func(float64) float64) []figure {
	const halfTop = topRate / 2
	carried := func(name, relays, about string, args ...string) figure {
		return figure{
			name: name, links: detour(relays, rate(halfTop)), shared: true,
			rows:  []row{{name: name, about: fmt.Sprintf("%s, cables of %g MB/s", about, rate(halfTop)), limit: "the same cable direct", unit: "MB/s", atLeast: 0.9}},
			ours:  through(relays, megabytes, args...),
			limit: direct(megabytes, args...),
		}
	}
	late := func(name, about string, args []string, beside string, limit side) figure {
		return figure{
			name: name, links: detour("r", 0), shared: true,
			rows:  []row{{name: name, about: about, limit: beside, unit: "us", atMost: 1.5}},
			ours:  through("r", micros, args...),
			limit: limit,
		}
	}
	twice := loop("verbs", func(s sample) float64 { return 2 * s.Micros }, warm...)
	large := []string{"stream", "--sizes", strconv.Itoa(mib)}
	return []figure{
		carried("relay-1MiB", "r", "1 MiB, 8 outstanding, through one node", large...),
		carried("relay-64KiB", "r", "64 KiB, 8 outstanding, through one node", "stream", "--sizes", strconv.Itoa(64*kib)),
		carried("relay-two-1MiB", "rs", "1 MiB, 8 outstanding, through two nodes", large...),
		carried("relay-both-1MiB", "r", "1 MiB, 8 outstanding each way, through one node", append(large, "--both", "--conns", "2")...),
		late("relay-latency-8B", "8 B through one node, isend to test done; both ranks on one processor, the relay on another",
			warm, "a C loop over one cable, twice", twice),
		late("relay-cold-8B", "the same after 3 ms in which nothing passed", idle, "a C loop over one cable, and one that the device wakes", side{whole: cold}),
		{
			name: "relay-cpu-1MiB", links: detour("r", rate(halfTop)), shared: true,
			rows: []row{{
				name: "relay-cpu-1MiB", about: "processor time that a node takes to relay a GiB, in parts of 1 MiB",
				limit: "both ranks, over the same cable direct", unit: "ms",
			}},
			ours:  through("r", func(s sample) float64 { return s.Relays / 1e6 / (s.Messages * float64(s.Size) / gib) }, large...),
			limit: direct(func(s sample) float64 { return s.CPU / 1e6 / (float64(s.Size) / gib) }, large...),
		},
	}
}
