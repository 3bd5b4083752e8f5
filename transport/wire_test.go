package transport

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestImm(t *testing.T) {
	tests := []struct {
		name string
		imm  imm
		want uint32
	}{
		{"zero", imm{}, 0},
		{"slot", imm{slot: 0xa5}, 0xa5000000},
		{"sub", imm{sub: 7}, 0x00e00000},
		{"one of many parts", imm{part: 3, last: 31}, 0x0003f800},
		{"writes", imm{writes: 0xff}, 0x000007f8},
		{"all", imm{slot: 255, sub: 7, part: 31, last: 31, writes: 255}, 0xfffffff8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.imm.encode(); got != tt.want {
				t.Errorf("encode: %#08x, want %#08x", got, tt.want)
			}
			got, ok := decodeImm(tt.want)
			if diff := cmp.Diff(tt.imm, got, cmp.AllowUnexported(imm{})); diff != "" || !ok {
				t.Errorf("decode: ok %v (-want +got):\n%s", ok, diff)
			}
		})
	}
	for _, v := range []uint32{1, 2, 4, 7, imm{part: 2, last: 1}.encode()} {
		if m, ok := decodeImm(v); ok {
			t.Errorf("decodeImm(%#08x) = %+v, want it refused", v, m)
		}
	}
}

// On the wire an immediate is big endian, whatever the machine.
func TestNetworkOrder(t *testing.T) {
	if got := networkOrder(networkOrder(0x12345678)); got != 0x12345678 {
		t.Errorf("there and back: %#x", got)
	}
	if got := networkOrder(0x12345678); got != 0x78563412 {
		t.Errorf("stored word %#x; both architectures are little endian", got)
	}
}

func FuzzImm(f *testing.F) {
	f.Add(uint32(0))
	f.Add(uint32(0xfffffff8))
	f.Fuzz(func(t *testing.T, v uint32) {
		if m, ok := decodeImm(v); ok && m.encode() != v {
			t.Errorf("%#08x decodes to %+v, which encodes to %#08x", v, m, m.encode())
		}
	})
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
		{100, 1 << 30, 128, maxWrites},
	}
	for _, tt := range tests {
		c := chunkOf(tt.a, tt.b)
		if c != tt.want || mostWrites(c) != tt.writes {
			t.Errorf("chunkOf(%d, %d) = %d with %d writes, want %d with %d", tt.a, tt.b, c, mostWrites(c), tt.want, tt.writes)
		}
	}
}
