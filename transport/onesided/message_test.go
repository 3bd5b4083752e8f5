package onesided

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The bytes of messages do not change, and other bytes are refused.
func TestMessageGolden(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("00", n) }
	for _, tt := range []struct {
		name   string
		m      message
		golden string
	}{
		{"signal", message{kind: kindSignal, window: 7, offset: 0x1008, value: 9, what: uint32(SignalAdd), number: 200},
			"01000000 07000000 0810000000000000 0900000000000000 0000000000000000 00000000 02000000 0000000000000000 c8" + zeros(15)},
		{"get", message{kind: kindGet, window: 7, offset: 1, value: 2, size: 1 << 32, toWindow: 8, toOffset: 3},
			"02000000 07000000 0100000000000000 0200000000000000 0000000001000000 08000000 00000000 0300000000000000" + zeros(16)},
		{"answer", message{kind: kindGot, value: 2, what: gotNoTarget},
			"03000000 00000000 0000000000000000 0200000000000000 0000000000000000 00000000 02000000 0000000000000000" + zeros(16)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b [messageSize]byte
			tt.m.encode(b[:])
			if diff := cmp.Diff(strings.ReplaceAll(tt.golden, " ", ""), hex.EncodeToString(b[:])); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
			var got message
			if err := got.decode(b[:]); err != nil || got != tt.m {
				t.Errorf("decoded %+v: %v", got, err)
			}
			for _, i := range []int{0, 39, 49, 63} { // kind, what, zeros
				c := b
				c[i] |= 0x80
				if err := got.decode(c[:]); err == nil {
					t.Errorf("byte %d changed: accepted as %+v", i, got)
				}
			}
		})
	}
}
