package onesided

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/conn"
)

// A put of any size is cut into puts that package conn can make, which lie side by side, also where sizes and offsets need more
// than 32 bits.
func TestNextPut(t *testing.T) {
	const from, to = 7<<40 + 5, 5<<30 + 3
	for _, tt := range []struct {
		size uint64
		want []int
	}{
		{1, []int{1}},
		{conn.MaxPut, []int{conn.MaxPut}},
		{conn.MaxPut + 1, []int{conn.MaxPut, 1}},
		{2 << 30, []int{conn.MaxPut, conn.MaxPut}},
		{4<<30 - 1, []int{conn.MaxPut, conn.MaxPut, conn.MaxPut, conn.MaxPut - 1}},
		{4<<30 + 1, []int{conn.MaxPut, conn.MaxPut, conn.MaxPut, conn.MaxPut, 1}},
	} {
		o := &op{from: from, to: to, size: tt.size}
		var got []int
		for o.begun < o.size {
			offset, addr, n := o.nextPut(conn.MaxPut)
			if offset-to != o.begun || uint64(addr)-from != o.begun || n < 1 {
				t.Fatalf("of %d bytes, behind %d: %d bytes from %#x to offset %d", tt.size, o.begun, n, addr, offset)
			}
			got = append(got, n)
			o.begun += uint64(n)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%d bytes (-want +got):\n%s", tt.size, diff)
		}
	}
}
