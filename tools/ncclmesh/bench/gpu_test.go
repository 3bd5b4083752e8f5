package bench

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"ncclmesh/tools/ncclmesh/nccl"
)

// What ranks send, carried to where it belongs by NCCL's definition, is what they expect; and one element that differs counts.
func TestPartsOfNCCL(t *testing.T) {
	const ranks = 3
	for _, kind := range NCCLKinds {
		for _, bytes := range []int{4, 60, 4096} {
			p := newPart(kind, bytes, ranks)
			if p.total() > max(bytes, 4*ranks) || p.total() < bytes-4*ranks+4 {
				t.Errorf("%s of %d bytes is made of %d", kind, bytes, p.total())
			}
			for rank := range ranks {
				want := p.expected(rank)
				if n := differ(want, deliverPart(p, rank)); n != 0 {
					t.Errorf("%s of %d bytes: %d of %d elements are not as rank %d expects", kind, bytes, n, len(want)/4, rank)
				}
				for _, inPlace := range []bool{false, true} {
					from, to := p.places(rank, inPlace)
					limit := roundUp(max(bytes, p.total()), 4*ranks)
					if inPlace != (from.Buffer == to.Buffer) || from.Offset+len(p.sent(rank)) > limit || to.Offset+len(want) > limit {
						t.Errorf("%s of %d bytes, in place %t: from %+v, to %+v of %d", kind, bytes, inPlace, from, to, limit)
					}
				}
				want[len(want)-1] ^= 0x40
				if n := differ(want, p.expected(rank)); n != 1 {
					t.Errorf("%s: %d wrong after one was changed", kind, n)
				}
			}
		}
	}
	if from, to := newPart(AllGather, 120, ranks).places(2, true); from != (nccl.Place{Buffer: nccl.Recv, Offset: 80}) || to != (nccl.Place{Buffer: nccl.Recv}) {
		t.Errorf("rank 2 gathers in place from %+v to %+v", from, to)
	}
}

// deliverPart is what a rank receives by the definition of the collective. Elements are small whole numbers, whose sums are exact.
func deliverPart(p part, rank int) []byte {
	var sent [][]byte
	for r := range p.ranks {
		sent = append(sent, p.sent(r))
	}
	switch p.kind {
	case Broadcast:
		return sent[root]
	case AllGather:
		var all []byte
		for _, b := range sent {
			all = append(all, b...)
		}
		return all
	}
	total := floats(len(sent[0])/4, func(i int) (sum float32) {
		for _, b := range sent {
			sum += math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
		}
		return sum
	})
	if p.kind == ReduceScatter {
		return total[4*p.count*rank:][:4*p.count]
	}
	return total
}

func TestNotes(t *testing.T) {
	c := crew{
		{name: "a", started: started{Against: []string{"x hinders"}}},
		{name: "b", started: started{Against: []string{"x hinders", "y hinders"}}},
		{name: "c"},
	}
	if got := strings.Join(c.notes(), "; "); got != "a, b: x hinders; b: y hinders" {
		t.Error(got)
	}
}

func TestLineWriter(t *testing.T) {
	var b strings.Builder
	w := &lineWriter{to: &b, prefix: "a: "}
	for _, part := range []string{"one\ntw", "o\nthr"} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.String(); got != "a: one\na: two\n" {
		t.Errorf("%q", got)
	}
}
