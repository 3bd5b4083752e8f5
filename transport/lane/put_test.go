package lane_test

import (
	"testing"

	"ncclmesh/transport/lane"
)

// A code of a put names its window, and is no immediate; no immediate is the code of a put.
func TestPutCode(t *testing.T) {
	for window, want := range map[uint32]uint32{1: 7, 2: 11, lane.MaxWindow: 1<<32 - 1} {
		code := lane.PutCode(window)
		if code != want {
			t.Errorf("code of window %d: %#x, want %#x", window, code, want)
		}
		if got, put := lane.PutWindow(code); got != window || !put {
			t.Errorf("window of code %#x: %d, %v", code, got, put)
		}
		var m lane.Imm
		if m.Decode(code) {
			t.Errorf("code %#x is an immediate", code)
		}
	}
	for _, m := range []lane.Imm{{}, {Slot: 255, Sub: 7, Part: 31, Last: 31, Writes: 255, Again: true}, {Slot: 255, Part: 31, Last: 31, Number: 255, Again: true, Brief: true}} {
		if _, put := lane.PutWindow(m.Encode()); put {
			t.Errorf("immediate %+v is the code of a put", m)
		}
	}
}
