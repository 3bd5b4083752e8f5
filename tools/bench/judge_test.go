package main

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
)

func TestBetween(t *testing.T) {
	tests := []struct{ n, low, high int }{
		{1, 1, 1}, {2, 1, 2}, {5, 1, 5}, {7, 1, 7}, {10, 1, 10},
		{11, 2, 10}, // 1 in 85 sets of 11 has the median outside
		{15, 3, 13}, {31, 9, 23},
	}
	for _, tt := range tests {
		ratios := make([]float64, tt.n)
		for i := range ratios {
			ratios[i] = float64(i + 1)
		}
		if low, high := between(ratios); low != float64(tt.low) || high != float64(tt.high) {
			t.Errorf("of %d: %g to %g, want %d to %d", tt.n, low, high, tt.low, tt.high)
		}
	}
	if low, high := between(nil); low != 0 || high != 0 {
		t.Errorf("of none: %g to %g", low, high)
	}
}

func TestNoise(t *testing.T) {
	tests := []struct {
		name   string
		ratios []float64
		want   float64
	}{
		{"the farther end counts", []float64{2.2, 1.9, 2}, 0.1},
		{"one that is far off is not in it", []float64{1, 1, 1, 1, 1, 1.1, 1, 1, 1, 1, 9}, 0.1},
		{"no ratios", []float64{0, 0}, 0},
		{"none", nil, 0},
	}
	for _, tt := range tests {
		before := slices.Clone(tt.ratios)
		if got := noise(tt.ratios); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", tt.name, got, tt.want)
		}
		if diff := cmp.Diff(before, tt.ratios); diff != "" {
			t.Errorf("%s: the ratios changed:\n%s", tt.name, diff)
		}
	}
}

func TestChange(t *testing.T) {
	tests := []struct {
		name string
		in   result
		want verdict
	}{
		{"cost beyond the noise", result{Unit: "ns", Ratio: 1.05, Noise: 0.03}, worse},
		{"cost within it", result{Unit: "ns", Ratio: 1.05, Noise: 0.06}, none},
		{"less cost", result{Unit: "ns", Ratio: 0.9, Noise: 0.06}, better},
		{"less bandwidth", result{Unit: "MB/s", Ratio: 0.9, Noise: 0.06}, worse},
		{"more bandwidth", result{Unit: "MB/s", Ratio: 1.1, Noise: 0.06}, better},
		{"a model without noise", result{Unit: "MB/s", Ratio: 0.995}, none},
		{"targets do not count", result{Unit: "ns", Ratio: 1, AtMost: 0.5}, none},
	}
	for _, tt := range tests {
		tt.in.compared = true
		if got := tt.in.verdict(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// series is a side that gives numbers in order, and the last of them from then on.
func series(calls *int, numbers ...float64) side {
	return side{whole: func(*bench, string) ([]float64, error) {
		n := numbers[min(*calls, len(numbers)-1)]
		*calls++
		return []float64{n}, nil
	}}
}

// standing is a bench whose fabric is up, of no links.
func standing(o options) *bench {
	return &bench{o: o, out: io.Discard, cpus: []int{0}, up: &fabric.Fabric{}}
}

func TestWhatSeemsWorseIsMeasuredTwice(t *testing.T) {
	slow := slices.Repeat([]float64{2}, 5)
	tests := []struct {
		name    string
		value   []float64 // where the base has 1
		rounds  int
		verdict verdict
	}{
		{"the same", []float64{1}, 5, none},
		{"unlucky", append(slow, 1), 10, none},
		{"worse", slow, 10, worse},
		{"better", []float64{0.5}, 5, better},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var calls, baseCalls int
			b := standing(options{base: "x", runs: 5})
			value, beside := series(&calls, tt.value...), series(&baseCalls, 1)
			f := figure{rows: []row{{name: "f", unit: "ns"}}, ours: side{whole: func(b *bench, plugin string) ([]float64, error) {
				if plugin == "the base's" {
					return beside.whole(b, plugin)
				}
				return value.whole(b, plugin)
			}}}
			rs, err := b.against(f, "the base's")
			if err != nil {
				t.Fatal(err)
			}
			if calls != tt.rounds || baseCalls != tt.rounds || rs[0].Verdict != tt.verdict {
				t.Errorf("%d and %d rounds, %q; want %d and %q", calls, baseCalls, rs[0].Verdict, tt.rounds, tt.verdict)
			}
			res := results{Base: "0123", Figures: rs}
			var text bytes.Buffer
			res.print(&text)
			named := slices.Contains(res.worse(), "f")
			if said := strings.Contains(text.String(), "f is worse, +100.0 %"); named != (tt.verdict == worse) || said != named {
				t.Errorf("worse: %v; the text:\n%s", res.worse(), &text)
			}
		})
	}
}

func TestPairsTakeTurns(t *testing.T) {
	var order strings.Builder
	says := func(who string) contender {
		return contender{side: side{whole: func(_ *bench, plugin string) ([]float64, error) {
			order.WriteString(who + plugin)
			return []float64{float64(order.Len()), 1}, nil
		}}, plugin: " "}
	}
	rows, err := standing(options{runs: 3}).pairs("x", says("new"), says("base"), 1)
	if err != nil || len(rows) != 2 || len(rows[0]) != 3 {
		t.Fatalf("%v, %v", rows, err)
	}
	if got := order.String(); got != "new base base new new base " {
		t.Errorf("order: %s", got)
	}
}
