package lane_test

import (
	"testing"

	"ncclmesh/transport/lane"
)

// EagerNumber and Sequence return the number with the given lower bits that is nearest to the base, before or
// behind it.
func TestNearest(t *testing.T) {
	const numbers, sequences = 1 << lane.EagerBits, 1 << 32
	for _, base := range []uint64{0, 1, 15, numbers/2 + 3, numbers - 1, numbers, sequences - 7, sequences, 5 * sequences, 1<<63 + 12345} {
		for _, d := range []int64{0, 1, 16, -1, -15, 300, numbers/2 - 1, -numbers / 2} {
			want := base + uint64(d)
			if got := lane.EagerNumber(uint32(want)&(numbers-1), base); got != want {
				t.Errorf("number %#x near %#x: %#x", want, base, got)
			}
		}
		for _, d := range []int64{0, 1, 256, -1, -512, sequences/2 - 1, -sequences / 2} {
			want := base + uint64(d)
			if got := lane.Sequence(uint32(want), base); got != want {
				t.Errorf("sequence %#x near %#x: %#x", want, base, got)
			}
		}
	}
}
