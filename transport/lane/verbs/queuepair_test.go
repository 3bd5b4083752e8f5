package verbs

import (
	"testing"

	"ncclmesh/transport/lane"
)

// An immediate is big endian in packets, on any machine.
func TestNetworkOrder(t *testing.T) {
	if got := networkOrder(networkOrder(0x12345678)); got != 0x12345678 {
		t.Errorf("there and back: %#x", got)
	}
	if got := networkOrder(0x12345678); got != 0x78563412 {
		t.Errorf("stored word %#x; both architectures are little endian", got)
	}
}

func TestChunk(t *testing.T) {
	tests := []struct {
		a, b, want uint32
		writes     int
	}{
		{1 << 30, 1 << 30, 1 << 30, 1},
		{1 << 31, 1 << 31, 1 << 30, 1},
		{8 << 20, 1 << 30, 8 << 20, 128},
		{8<<20 + 100, 1 << 30, 8 << 20, 128},
		{0, 0, 1 << 30, 1},
		{100, 1 << 30, 128, lane.MaxWrites},
	}
	for _, tt := range tests {
		c := chunkOf(tt.a, tt.b)
		if c != tt.want || mostWrites(c) != tt.writes {
			t.Errorf("chunkOf(%d, %d) = %d with %d writes, want %d with %d", tt.a, tt.b, c, mostWrites(c), tt.want, tt.writes)
		}
	}
}
