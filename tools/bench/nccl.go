package main

import (
	"math"
	"math/bits"

	"ncclmesh/tuner"
)

// What NCCL 2.30 assumes of a node with one GPU: times in µs, rates in GB/s.
var ncclModel = struct {
	base   map[tuner.Algo][tuner.NumProtos]float64
	net    [tuner.NumProtos]float64 // a step between nodes
	llRate [2]float64               // most of LL with two nodes, and with more
	tree   float64                  // most of a channel of a tree with Simple
	// What is left of a tree's rate, by powers of two from 64 bytes on.
	treeLeft map[tuner.Proto][]float64
}{
	base:   map[tuner.Algo][tuner.NumProtos]float64{tuner.Tree: {6.8, 14, 8.4}, tuner.Ring: {6.6, 14, 8.4}},
	net:    [tuner.NumProtos]float64{5, 8.5, 14},
	llRate: [2]float64{39, 20.4},
	tree:   24,
	treeLeft: map[tuner.Proto][]float64{
		tuner.LL:     {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9},
		tuner.Simple: {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
	},
}

// ncclChoice is how NCCL itself does an all-reduce, with so many channels at its
// disposal and a network of that rate in GB/s.
func ncclChoice(nodes, channels int, rate, bytes float64) tuner.Choice {
	best, least := tuner.Choice{}, math.Inf(1)
	for _, a := range []tuner.Algo{tuner.Tree, tuner.Ring} {
		for _, p := range []tuner.Proto{tuner.LL, tuner.Simple} {
			if t := ncclTime(nodes, channels, rate, bytes, a, p); t < least {
				best, least = tuner.Choice{Algo: a, Proto: p}, t
			}
		}
	}
	best.Channels = ncclChannels(best.Algo, best.Proto, nodes, channels, bytes)
	return best
}

func ncclTime(nodes, channels int, rate, bytes float64, a tuner.Algo, p tuner.Proto) float64 {
	m, n := ncclModel, float64(nodes)
	llRate := m.llRate[min(nodes-2, 1)]
	steps := 2 * (n - 1)
	if a == tuner.Ring {
		if p == tuner.LL {
			rate = min(llRate, rate/2)
		}
		latency := m.base[a][p] + steps*m.net[p]
		if p == tuner.Simple && bytes/float64(channels*nodes) >= 64 {
			latency *= 1.4
		}
		return latency + bytes/1000/(rate*n/steps)
	}
	rate = min(rate*.92, float64(channels)*m.tree)
	if p == tuner.LL {
		rate = min(rate/3.8, llRate)
	}
	if left, at := m.treeLeft[p], bits.Len64(uint64(bytes)>>6)-1; at >= 0 && at < len(left) {
		rate *= left[at]
	}
	return m.base[a][p] + 2*float64(bits.Len(uint(nodes))-1)*m.net[p] + bytes/1000/(rate/2)
}

// ncclChannels: each has to have so many bytes for each of its threads.
func ncclChannels(a tuner.Algo, p tuner.Proto, nodes, channels int, bytes float64) int {
	const threads = 512
	each := 64.0
	if p == tuner.LL {
		each = 8
		if a == tuner.Ring {
			each *= float64(nodes)
		}
	}
	return max(1, min(channels, int(bytes/threads/each)))
}
