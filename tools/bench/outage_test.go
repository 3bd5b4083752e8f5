package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The figures of an outage are read off the times at which messages were done.
func TestOutage(t *testing.T) {
	const ms = 1_000_000
	stream := func(spans ...[3]int64) (r streamed) { // from, to, every: ms
		r = streamed{Size: 1_000_000, out: 1000 * ms, back: 3000 * ms}
		for _, s := range spans {
			for at := s[0]; at < s[1]; at += s[2] {
				r.Done = append(r.Done, at*ms)
			}
		}
		return r
	}
	tests := []struct {
		name string
		in   streamed
		want []float64 // pause, rate left, return
	}{
		{"a pause, half the rate, and back", stream([3]int64{0, 1000, 5}, [3]int64{1050, 3500, 10}, [3]int64{3500, 5000, 5}), []float64{55, 100, 480}},
		{"nothing happened", stream([3]int64{0, 5000, 5}), []float64{5, 200, 0}},
		{"it never came back", stream([3]int64{0, 1000, 5}, [3]int64{1500, 5000, 10}), []float64{505, 100, -1}},
		{"a pause as long as the cable was out", stream([3]int64{0, 1000, 5}, [3]int64{3100, 5000, 5}), []float64{2105, 0, 85}},
		{"a pause that is no part of it", stream([3]int64{0, 500, 5}, [3]int64{800, 5000, 5}), []float64{5, 200, 0}},
		{"nothing came", stream(), []float64{0, 0, -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.in.figures(100), cmpopts.EquateApprox(0.03, 3)); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}
