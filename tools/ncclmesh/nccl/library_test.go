package nccl

import "testing"

func TestVersion(t *testing.T) {
	for number, want := range map[int]string{2806: "2.8.6", 21304: "2.13.4", 22203: "2.22.3", 22907: "2.29.7"} {
		if got := (&Library{version: number}).Version(); got != want {
			t.Errorf("%d is %s, want %s", number, got, want)
		}
	}
}

func TestParts(t *testing.T) {
	r := &Rank{bytes: 100, buffers: [2]uintptr{1000, 2000}}
	for _, tt := range []struct {
		buffer, offset, bytes int
		want                  uintptr
	}{{Send, 0, 100, 1000}, {Recv, 96, 4, 2096}, {Recv, 96, 8, 0}, {Send, -4, 4, 0}} {
		got, err := r.at(tt.buffer, tt.offset, tt.bytes)
		if got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%d bytes at %d of buffer %d: %d, %v, want %d", tt.bytes, tt.offset, tt.buffer, got, err, tt.want)
		}
	}
}
