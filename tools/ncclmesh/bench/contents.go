package bench

import (
	"encoding/binary"
	"math"
)

// element is what a rank adds to a sum: a whole number, so that sums are exact in any order.
func element(rank, i int) float32 { return float32((i + 3*rank) % 17) }

// fill writes what a collective begins with.
func (t *turn) fill(kind string) {
	b := t.own.Bytes()[:t.bytes]
	clear(t.other.Bytes())
	switch kind {
	case AllReduce:
		for i := range t.bytes / 4 {
			binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(element(t.rank, i)))
		}
	case AllToAll:
		for rank := range t.n {
			off, end := t.chunk(rank, 1)
			pattern(b[off:end], t.rank*31+rank)
		}
	case SendRecv:
		pattern(b, t.rank)
	}
}

// wrong counts the elements that are not as they should be in the end.
func (t *turn) wrong(kind string) (n int64) {
	switch kind {
	case AllReduce:
		b := t.own.Bytes()
		for i := range t.bytes / 4 {
			var want float32
			for rank := range t.n {
				want += element(rank, i)
			}
			if math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:])) != want {
				n++
			}
		}
	case AllToAll:
		for rank := range t.n {
			off, end := t.chunk(rank, 1)
			n += wrong(t.other.Bytes()[off:end], rank*31+t.rank)
		}
	case SendRecv:
		n = wrong(t.other.Bytes()[:t.bytes], t.prev())
	}
	return n
}
