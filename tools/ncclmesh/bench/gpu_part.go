package bench

import (
	"encoding/binary"
	"math"

	"ncclmesh/tools/ncclmesh/nccl"
)

// A part is what one rank does in a collective of NCCL. All elements are float32.
type part struct {
	kind  string
	ranks int
	count int // elements, as NCCL counts them: of each rank's share where there are shares
}

// root is the rank that a broadcast comes from.
const root = 0

// newPart returns the part in a collective of so many bytes or a little more: at least one element of each share.
func newPart(kind string, bytes, ranks int) part {
	p := part{kind: kind, ranks: ranks}
	switch kind {
	case AllGather, ReduceScatter:
		p.count = max(bytes/(4*ranks), 1)
	default:
		p.count = max(bytes/4, 1)
	}
	return p
}

// total returns the bytes of the collective as nccl-tests counts them.
func (p part) total() int {
	switch p.kind {
	case AllGather, ReduceScatter:
		return 4 * p.count * p.ranks
	}
	return 4 * p.count
}

// places returns where a rank's collective reads and writes.
func (p part) places(rank int, inPlace bool) (from, to nccl.Place) {
	from, to = nccl.Place{Buffer: nccl.Send}, nccl.Place{Buffer: nccl.Recv}
	if !inPlace {
		return from, to
	}
	from.Buffer = nccl.Recv
	switch p.kind {
	case AllGather:
		from.Offset = 4 * p.count * rank
	case ReduceScatter:
		to.Offset = 4 * p.count * rank
	}
	return from, to
}

// begin begins the collective on a GPU.
func (p part) begin(r *nccl.Rank, from, to nccl.Place) error {
	switch p.kind {
	case AllGather:
		return r.AllGather(from, to, p.count, p.ranks)
	case ReduceScatter:
		return r.ReduceScatter(from, to, p.count, p.ranks)
	case Broadcast:
		return r.Broadcast(from, to, p.count, root)
	}
	return r.AllReduce(from, to, p.count)
}

// sent returns what a rank sends.
func (p part) sent(rank int) []byte {
	n := p.count
	if p.kind == ReduceScatter {
		n *= p.ranks
	}
	return floats(n, func(i int) float32 { return element(rank, i) })
}

// expected returns what a rank receives.
func (p part) expected(rank int) []byte {
	sum := func(i int) (s float32) {
		for r := range p.ranks {
			s += element(r, i)
		}
		return s
	}
	switch p.kind {
	case AllGather:
		return floats(p.count*p.ranks, func(i int) float32 { return element(i/p.count, i%p.count) })
	case ReduceScatter:
		return floats(p.count, func(i int) float32 { return sum(rank*p.count + i) })
	case Broadcast:
		return floats(p.count, func(i int) float32 { return element(root, i) })
	}
	return floats(p.count, sum)
}

func floats(n int, of func(i int) float32) []byte {
	b := make([]byte, 4*n)
	for i := range n {
		binary.NativeEndian.PutUint32(b[4*i:], math.Float32bits(of(i)))
	}
	return b
}

// differ counts the elements in which two texts of one length differ.
func differ(a, b []byte) (n int64) {
	for i := 0; i+4 <= len(a); i += 4 {
		if binary.NativeEndian.Uint32(a[i:]) != binary.NativeEndian.Uint32(b[i:]) {
			n++
		}
	}
	return n
}
