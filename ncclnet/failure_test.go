package ncclnet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNews(t *testing.T) {
	type answer struct{ IsNew, GoingOn bool }
	var f failure
	start := time.Unix(1000, 0)
	var got []answer
	for _, call := range []struct {
		text  string
		after time.Duration
	}{
		{"peer lost", 0},
		{"peer lost", time.Second},
		{"another", time.Second},
		{"another", goesOn},
		{"another", goesOn + 1},
		{"another", 2 * goesOn},
		{"peer lost", 3 * goesOn},
	} {
		isNew, goingOn := f.news(call.text, start.Add(call.after))
		got = append(got, answer{isNew, goingOn})
	}
	want := []answer{{true, false}, {false, false}, {true, false}, {false, false}, {false, true}, {false, false}, {true, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
}
