package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A sweep measures each kind in all sizes that memory leaves room for, and ends with the first error. In JSON its members are the
// report's own.
func TestSweep(t *testing.T) {
	failed := errors.New("it failed")
	tests := []struct {
		name   string
		memory int64
		fails  string // the measurement that does
		want   []string
		most   int
	}{
		{"all", 1 << 20, "", []string{"x 4", "x 16", "x 64", "y 4", "y 16", "y 64"}, 0},
		{"little memory", 40, "", []string{"x 4", "x 16", "y 4", "y 16"}, 20},
		{"none", 2, "", nil, 1},
		{"an error", 1 << 20, "x 16", []string{"x 4"}, 0},
	}
	for _, tt := range tests {
		r := &CollReport{}
		o := CollOptions{Kinds: []string{"x", "y"}, Least: 4, Most: 64, Factor: 4}
		r.limit(&o, tt.memory)
		err := r.run(t.Context(), &o, func(kind string, bytes int) (CollRow, error) {
			if tt.fails == fmt.Sprint(kind, " ", bytes) {
				return CollRow{}, failed
			}
			return CollRow{Kind: kind, Bytes: bytes}, nil
		})
		var got []string
		for _, row := range r.Rows {
			got = append(got, fmt.Sprint(row.Kind, " ", row.Bytes))
		}
		if !slices.Equal(got, tt.want) || r.Most != tt.most || (err != nil) != (tt.fails != "") {
			t.Errorf("%s: %q, at most %d, %v; want %q, %d", tt.name, got, r.Most, err, tt.want, tt.most)
		}
	}
	r := &NCCLReport{Schema: NCCLSchema, Ranks: []GPU{}, Notes: []string{}}
	r.limit(&CollOptions{Most: 8}, 8)
	text, err := json.Marshal(r)
	if diff := cmp.Diff(`{"schema":"ncclmesh.bench-nccl/1","ranks":[],"mostBytes":4,"rows":[],"notes":[]}`, string(text)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	r.Rows = []NCCLRow{{Kind: AllReduce, Bytes: 8, OutPlace: Figures{Wrong: 1}, InPlace: Figures{Wrong: 2}}}
	if err := r.Err(); err == nil || err.Error() != "all_reduce of 8 bytes: 3 elements are wrong" {
		t.Error(err)
	}
}
