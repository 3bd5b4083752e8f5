package tuner

import "math"

// A Model tells times on a mesh.
type Model struct {
	Mesh  Mesh
	Costs Costs

	patterns map[key]pattern
}

type key struct {
	f Func
	a Algo
}

// NewModel returns the model of a mesh of two nodes or more.
func NewModel(m Mesh, c Costs) *Model {
	model := &Model{m, c, map[key]pattern{}}
	for f := Func(0); f < NumFuncs; f++ {
		for _, a := range f.algos() {
			model.patterns[key{f, a}] = patternOf(m, f, a)
		}
	}
	return model
}

// A Choice is how an operation is done.
type Choice struct {
	Algo     Algo
	Proto    Proto
	Channels int
}

// Reachable reports whether an algorithm's messages all have a way. A ring
// always counts as one: something has to be used.
func (m *Model) Reachable(f Func, a Algo) bool { return a == Ring || m.patterns[key{f, a}].reachable }

// Time is how long an operation of so many bytes, as NCCL counts them, takes in
// µs, with chunks of at most the given size where they follow one another.
func (m *Model) Time(f Func, how Choice, bytes, chunk float64) float64 {
	p, c, proto := m.patterns[key{f, how.Algo}], m.Costs, protocols[how.Proto]
	channels := float64(how.Channels)

	latency := 0.0
	for _, hops := range p.hops {
		latency += c.Step[how.Proto] + float64(hops)*c.Hop + float64(hops-1)*c.Relay
	}
	if how.Algo == PAT {
		latency += c.PATRank * float64(m.Mesh.Nodes)
	}

	// µs a byte: the kernels' share, and the cables'.
	rate := 1.0
	switch {
	case how.Algo == Tree && how.Proto == Simple:
		rate = c.TreeRate
	case how.Algo == PAT:
		rate = c.PATRate
	}
	kernel := 1 / (channels * c.Channel * proto.rate)
	cable := proto.wire / (float64(c.Lanes) * c.Lane)
	transfer := bytes * (p.copied*kernel + p.carried*cable) / rate

	// A chunk is posted in each step; more than a message holds is several.
	perMessage := proto.message
	if p.pipelined {
		chunk = min(chunk, bytes/channels)
		latency += chunk * float64(len(p.hops)-1) * (kernel*channels + cable) / rate
		perMessage = min(perMessage, max(chunk, 1))
	}
	least := float64(p.messages) * proto.slices
	messages := channels * max(least, math.Ceil(bytes*p.copied/channels/perMessage))
	return c.Base + latency + (messages-least)*c.Message + transfer // the steps have those of one channel
}

// channels are the numbers of channels that are tried.
var channels = []int{1, 2, 4, 8, MaxChannels}

// Best returns the channels for an algorithm and protocol, and the time with
// them: of those that are about as fast, the fewest.
func (m *Model) Best(f Func, a Algo, p Proto, bytes float64) (Choice, float64) {
	best, time := Choice{a, p, channels[0]}, m.Time(f, Choice{a, p, channels[0]}, bytes, Chunk)
	for _, n := range channels[1:] {
		how := Choice{a, p, n}
		if t := m.Time(f, how, bytes, Chunk); t*worth < time {
			best, time = how, t
		}
	}
	return best, time
}

// ChunkOf returns the chunk that makes a pipeline fastest, of a channel that has
// so many bytes: a power of two from 64 KiB to what NCCL takes by itself. Zero:
// there is no pipeline.
func (m *Model) ChunkOf(f Func, a Algo, p Proto, bytes float64) int {
	if p != Simple || !m.patterns[key{f, a}].pipelined {
		return 0
	}
	best, time := Chunk, math.Inf(1)
	for chunk := Chunk; chunk >= 64<<10; chunk /= 2 {
		if t := m.Time(f, Choice{a, p, 1}, bytes, float64(chunk)); t < time {
			best, time = chunk, t
		}
	}
	return best
}
