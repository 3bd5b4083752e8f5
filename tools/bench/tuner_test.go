package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"ncclmesh/tuner"
)

// What NCCL prints for such a machine (NCCL_DEBUG_SUBSYS=TUNING), and follows from it.
func TestNCCLChoice(t *testing.T) {
	tests := []struct {
		nodes, channels int
		bytes           float64
		want            tuner.Choice
	}{
		{2, 16, 8, tuner.Choice{Algo: tuner.Ring, Proto: tuner.LL, Channels: 1}},
		{3, 16, 8, tuner.Choice{Algo: tuner.Tree, Proto: tuner.LL, Channels: 1}},
		{3, 64, 512 << 10, tuner.Choice{Algo: tuner.Ring, Proto: tuner.LL, Channels: 42}},
		{3, 16, 1 << 30, tuner.Choice{Algo: tuner.Ring, Proto: tuner.Simple, Channels: 16}},
	}
	for _, tt := range tests {
		if got := ncclChoice(tt.nodes, tt.channels, 27.9, tt.bytes); got != tt.want {
			t.Errorf("%d nodes, %d channels, %g bytes: %+v, want %+v", tt.nodes, tt.channels, tt.bytes, got, tt.want)
		}
	}
}

// By the model that it chooses by, the tuner is never behind NCCL by more than what
// it gives for fewer channels.
func TestTunerLines(t *testing.T) {
	sizes := tunerSizes()
	lines := tunerLines(sizes)
	for i, size := range sizes {
		for _, nccl := range []string{few, many} {
			if ours := lines[oursLine][i]; ours > 1.3*lines[nccl][i] {
				t.Errorf("%d bytes: %.0f µs, %s %.0f", size, ours, nccl, lines[nccl][i])
			}
		}
	}
}

func TestDrawTuner(t *testing.T) {
	dir := t.TempDir()
	if err := drawTuner(dir); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "tuner.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", oursLine, many, "32 KiB"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
}
