package main

import (
	"math"
	"slices"
)

// A pair is a value and what was measured beside it, in turn with it.
type pair struct {
	Value  float64 `json:"value"`
	Beside float64 `json:"beside"` // its limit; with a base, the base's value
	Ratio  float64 `json:"ratio"`
	Others float64 `json:"others"` // share of the processors that other programs took
}

// pairOf is of two numbers; the ratio to nothing is 0.
func pairOf(value, beside float64) pair {
	p := pair{Value: value, Beside: beside}
	if beside != 0 {
		p.Ratio = value / beside
	}
	return p
}

// middle has the median of everything.
func middle(pairs []pair) pair {
	return pair{
		Value:  over(pairs, func(p pair) float64 { return p.Value }),
		Beside: over(pairs, func(p pair) float64 { return p.Beside }),
		Ratio:  over(pairs, func(p pair) float64 { return p.Ratio }),
		Others: over(pairs, func(p pair) float64 { return p.Others }),
	}
}

// What a machine does to one of a pair it mostly does to both: the ratio of a pair
// says more than the ratio of two medians. How far the median of the ratios can be
// trusted is said by the ratios themselves, whatever their distribution: each of
// them is as likely below the true median as above it, so that few at either end
// are enough to hold it between them.
const (
	doubt = 0.02 // how often the true median may lie outside, if there are enough pairs
	least = 0.01 // a smaller difference is not told from where a compiler puts things
	// fewest pairs from which a difference is told: of sets of five without one, 1 in
	// 32 lies on the worse side, and has to do so twice.
	fewest = 5
)

// between returns the ratios, which are in order, that hold the true median
// between them.
func between(ratios []float64) (low, high float64) {
	n := len(ratios)
	if n == 0 {
		return 0, 0
	}
	out := 0 // at either end
	term := math.Pow(0.5, float64(n))
	for tail, k := term, 1; k <= (n-1)/2; k++ { // tail: that the median lies below the k-th
		term *= float64(n-k+1) / float64(k)
		if tail += term; 2*tail > doubt {
			break
		}
		out = k
	}
	return ratios[out], ratios[n-1-out]
}

// noise is how far the true median may be from that of the ratios, as a part of it.
func noise(ratios []float64) float64 {
	sorted := slices.Sorted(slices.Values(ratios))
	low, high := between(sorted)
	if middle := median(sorted); middle != 0 {
		return max(high/middle-1, 1-low/middle)
	}
	return 0
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// over is the median of something over pairs.
func over(pairs []pair, of func(pair) float64) float64 {
	all := make([]float64, len(pairs))
	for i, p := range pairs {
		all[i] = of(p)
	}
	return median(all)
}

// A verdict says what is to be said of a result.
type verdict string

const (
	none   verdict = "" // no target, or no difference beyond the noise
	met    verdict = "met"
	missed verdict = "missed"
	worse  verdict = "worse"
	better verdict = "better"
)

// verdict is whether the target is met; beside a base, whether it is another one
// beyond the noise.
func (r result) verdict() verdict {
	switch {
	case r.compared:
		return r.change()
	case r.target() == "":
		return none
	case r.AtLeast > 0 && r.Ratio < r.AtLeast, r.AtMost > 0 && r.Ratio > r.AtMost, r.Zero && r.Value != 0:
		return missed
	}
	return met
}

func (r result) change() verdict {
	if math.Abs(r.Ratio-1) <= max(r.Noise, least) {
		return none
	}
	if more := r.Ratio > 1; more == (r.Unit == "MB/s") { // of all else less is better
		return better
	}
	return worse
}
