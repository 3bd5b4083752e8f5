package tuner

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// NumClasses is how many classes of size there are: each power of two from 4 on is
// cut into four. The last one begins at 3.5 TiB and has no end.
const NumClasses = 160

// Class returns the class of a size.
func Class(bytes uint64) int {
	bytes = max(bytes, 4)
	shift := bits.Len64(bytes) - 3 // leaves three bits, of which the first is set
	return min(4*shift+int(bytes>>shift&3), NumClasses-1)
}

// Least is the smallest size of a class, but for the first, which begins at 0.
func Least(class int) uint64 { return uint64(4+class%4) << (class / 4) }

// NumChoices is the most choices that a class has: two algorithms, three protocols.
const NumChoices = 6

// A Table is the answers for one mesh.
type Table struct {
	// Choices are how an operation of a class can be done, fastest first. NCCL may
	// not have all of them.
	Choices [NumFuncs][NumClasses][]Choice
	// Chunks are the chunks of a channel that has a class's bytes, by ring with
	// Simple; 0 leaves it to NCCL.
	Chunks [NumFuncs][NumClasses]int
	// Without lists algorithms that have no way between some nodes: they are in no
	// Choices.
	Without []Algo
}

// NewTable computes the answers.
func NewTable(model *Model) *Table {
	t := &Table{}
	for f := Func(0); f < NumFuncs; f++ {
		for _, a := range f.algos() {
			if !model.Reachable(f, a) && !slices.Contains(t.Without, a) {
				t.Without = append(t.Without, a)
			}
		}
		for class := range NumClasses {
			bytes := float64(Least(class))
			t.Choices[f][class] = model.rank(f, bytes)
			t.Chunks[f][class] = model.ChunkOf(f, Ring, Simple, bytes)
		}
	}
	return t
}

// rank returns how an operation can be done, fastest first.
func (m *Model) rank(f Func, bytes float64) []Choice {
	type timed struct {
		Choice
		time float64
	}
	var all []timed
	for _, a := range f.algos() {
		if !m.Reachable(f, a) {
			continue
		}
		for _, p := range a.protos() {
			how, time := m.Best(f, a, p, bytes)
			if p == LL128 {
				time = math.Inf(1)
			}
			all = append(all, timed{how, time})
		}
	}
	slices.SortStableFunc(all, func(x, y timed) int { return cmp.Compare(x.time, y.time) })
	var choices []Choice
	for _, t := range all {
		choices = append(choices, t.Choice)
	}
	return choices
}
