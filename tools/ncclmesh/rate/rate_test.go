package rate

import "testing"

func TestBusy(t *testing.T) {
	tests := []struct {
		crowded [2]float64
		want    int
	}{
		{[2]float64{}, -1},
		{[2]float64{0.59, 0.59}, -1},
		{[2]float64{0.6, 0}, 0},
		{[2]float64{0.1, 0.84}, 1},
		{[2]float64{0.7, 0.9}, 0},
	}
	for _, tt := range tests {
		if got := Busy(tt.crowded); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.crowded, got, tt.want)
		}
	}
}

func TestBelow(t *testing.T) {
	tests := []struct {
		rate, allowed, share float64
		want                 bool
	}{
		{74, 100, Low, true},
		{75, 100, Low, false},
		{13, 123, Stuck, true},
		{190, 2 * 126, BothWays, false},
		{0, 0, Low, false},
	}
	for _, tt := range tests {
		if got := Below(tt.rate, tt.allowed, tt.share); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
