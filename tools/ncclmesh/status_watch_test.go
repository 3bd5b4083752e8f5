package main

import "testing"

func TestFrame(t *testing.T) {
	tests := []struct {
		name, text    string
		columns, rows int
		want          string
	}{
		{"fits", "one\ntwo\n", 10, 2, "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J"},
		{"wide", "p0═p1 2 rdma\n", 6, 2, "\x1b[Hp0═p1…\x1b[K\x1b[J"},
		{"long", "one\ntwo\nthree\n", 30, 2, "\x1b[Hone\x1b[K\r\n… and 2 lines more\x1b[K\x1b[J"},
	}
	for _, tt := range tests {
		if got := frame(tt.text, tt.columns, tt.rows); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
