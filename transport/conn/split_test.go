package conn

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/lane"
)

func TestSplit(t *testing.T) {
	const threshold = 1024
	tests := []struct {
		name  string
		size  int
		lanes []share
		want  []int
		n     int
	}{
		{"empty", 0, []share{{1, 0}, {1, 0}}, []int{0, 0}, 1},
		{"small goes to the first of equals", 100, []share{{1, 0}, {1, 0}}, []int{100, 0}, 1},
		{"small goes to the idle lane", 100, []share{{1, 5000}, {1, 0}}, []int{0, 100}, 1},
		{"small goes to the lane that delivers first", 100, []share{{10, 5000}, {1, 1000}}, []int{100, 0}, 1},
		{"one lane", 1 << 20, []share{{1, 0}}, []int{1 << 20}, 1},
		{"equal lanes", 1 << 20, []share{{1, 0}, {1, 0}}, []int{1 << 19, 1 << 19}, 2},
		{"two to one", 3 << 20, []share{{2, 0}, {1, 0}}, []int{2 << 20, 1 << 20}, 2},
		{"a lane out of service", 1 << 20, []share{{0, 0}, {1, 0}, {1, 0}}, []int{0, 1 << 19, 1 << 19}, 2},
		{"only one in service", 1 << 20, []share{{0, 0}, {1, 7}}, []int{0, 1 << 20}, 1},
		{"a backlog is levelled", 1 << 20, []share{{1, 1 << 18}, {1, 0}}, []int{(1<<20 - 1<<18) / 2, (1<<20 + 1<<18) / 2}, 2},
		{"a lane too busy gets nothing", 4096, []share{{1, 1 << 20}, {1, 0}, {1, 0}}, []int{0, 2048, 2048}, 2},
		{"cut on 128", 1300, []share{{1, 0}, {1, 0}}, []int{640, 660}, 2},
		{"nothing left for the third", 1100, []share{{1000, 0}, {1000, 0}, {1, 0}}, []int{512, 588, 0}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := make([]int, len(tt.lanes))
			n, which := split(tt.size, tt.lanes, threshold, got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
			if n != tt.n {
				t.Errorf("split over %d lanes, want %d", n, tt.n)
			}
			if tt.lanes[which].weight <= 0 {
				t.Errorf("lane %d is out of service", which)
			}
		})
	}
}

// With any lanes, a split is complete and aligned, and uses only lanes of positive weight.
func TestSplitInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		lanes := make([]share, 1+r.IntN(lane.MaxParts))
		for i := range lanes {
			lanes[i] = share{weight: float64(r.IntN(4)) * r.Float64() * 1e5, backlog: r.Int64N(1 << uint(1+r.IntN(32)))}
		}
		lanes[r.IntN(len(lanes))].weight = 1 + r.Float64()
		size := r.IntN(1 << uint(1+r.IntN(30)))
		parts := make([]int, len(lanes))
		n, which := split(size, lanes, 1+r.IntN(1<<20), parts)
		sum, used := 0, 0
		for i, b := range parts {
			if b < 0 || (b > 0 && lanes[i].weight <= 0) {
				t.Fatalf("lane %d of %+v gets %d bytes", i, lanes, b)
			}
			if sum%lane.PartAlign != 0 && b > 0 {
				t.Fatalf("the part of lane %d begins at %d", i, sum)
			}
			sum += b
			if b > 0 || (size == 0 && i == which) {
				used++
			}
		}
		if sum != size || used != n || lanes[which].weight <= 0 {
			t.Fatalf("split of %d over %+v: parts %v, %d lanes, last %d", size, lanes, parts, n, which)
		}
	}
}
