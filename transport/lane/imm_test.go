package lane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestImm(t *testing.T) {
	tests := []struct {
		name string
		imm  Imm
		want uint32
	}{
		{"zero", Imm{}, 0},
		{"slot", Imm{Slot: 0xa5}, 0xa5000000},
		{"sub", Imm{Sub: 7}, 0x00e00000},
		{"one of many parts", Imm{Part: 3, Last: 31}, 0x0003f800},
		{"writes", Imm{Writes: 0xff}, 0x000007f8},
		{"again", Imm{Again: true}, 0x00000004},
		{"brief", Imm{Slot: 1, Number: 0xa5, Brief: true}, 0x01000529},
		{"all", Imm{Slot: 255, Sub: 7, Part: 31, Last: 31, Writes: 255, Again: true}, 0xfffffffc},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.imm.Encode(); got != tt.want {
				t.Errorf("encode: %#08x, want %#08x", got, tt.want)
			}
			got := Imm{255, 255, 255, 255, 255, 255, true, true} // all of it is written
			ok := got.Decode(tt.want)
			if diff := cmp.Diff(tt.imm, got); diff != "" || !ok {
				t.Errorf("decode: ok %v (-want +got):\n%s", ok, diff)
			}
		})
	}
	for _, v := range []uint32{2, 3, 6, 7, Imm{Part: 2, Last: 1}.Encode()} {
		var m Imm
		if m.Decode(v) {
			t.Errorf("Decode(%#08x) = %+v, want it refused", v, m)
		}
	}
}

func FuzzImm(f *testing.F) {
	f.Add(uint32(0))
	f.Add(uint32(0xfffffffc))
	f.Add(uint32(0xfffffffd))
	f.Fuzz(func(t *testing.T, v uint32) {
		var m Imm
		if m.Decode(v) && m.Encode() != v {
			t.Errorf("%#08x decodes to %+v, which encodes to %#08x", v, m, m.Encode())
		}
	})
}
