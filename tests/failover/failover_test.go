package failover

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var wide = flag.Bool("wide", false, "search the spaces of millions of states as well, for minutes")

func (z sizes) String() string {
	s := fmt.Sprintf("%d lanes, window %d, %d messages of %d parts, %d failures, %d replaced", z.lanes, z.window, z.messages, z.parts, z.failures, z.replaced)
	if z.again > 0 {
		s += fmt.Sprintf(", %d sent again at once", z.again)
	}
	return s
}

// Nothing that may happen breaks a property, and whatever has happened, all goes on as
// long as a lane is left.
func TestProtocolHolds(t *testing.T) {
	spaces := []sizes{
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1},
		{lanes: 3, window: 1, messages: 2, parts: 1, failures: 1},
		{lanes: 2, window: 2, messages: 3, parts: 1, failures: 1},
		{lanes: 2, window: 1, messages: 2, parts: 2, failures: 1, again: 1},
		{lanes: 3, window: 1, messages: 2, parts: 1, failures: 2, again: 1},
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 2, replaced: 2, again: 1},
	}
	if *wide {
		spaces = append(spaces,
			sizes{lanes: 3, window: 1, messages: 1, parts: 2, failures: 2, again: 1},
			sizes{lanes: 3, window: 1, messages: 3, parts: 1, failures: 2, again: 2},
			sizes{lanes: 3, window: 2, messages: 3, parts: 1, failures: 1},
			sizes{lanes: 3, window: 2, messages: 2, parts: 1, failures: 2, again: 1},
			sizes{lanes: 3, window: 1, messages: 2, parts: 1, failures: 3, replaced: 2, again: 1},
			sizes{lanes: 3, window: 1, messages: 2, parts: 2, failures: 2, again: 2},
			sizes{lanes: 2, window: 2, messages: 2, parts: 2, failures: 1, replaced: 1, again: 1},
			sizes{lanes: 3, window: 2, messages: 3, parts: 1, failures: 2, again: 2})
	}
	for _, z := range spaces {
		t.Run(z.String(), func(t *testing.T) {
			f := model{sizes: z}.search()
			t.Logf("%d states", f.states)
			for bad, trace := range f.broken {
				t.Errorf("%s:%s", bad, numbered(trace))
			}
		})
	}
}

// Each mistake is found, by what it breaks; the trace says how.
func TestMistakesAreFound(t *testing.T) {
	two := sizes{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1}
	three := sizes{lanes: 3, window: 1, messages: 2, parts: 1, failures: 1}
	parts := sizes{lanes: 2, window: 1, messages: 1, parts: 2, failures: 1, again: 1}
	for _, tt := range []struct {
		name  string
		wrong mistake
		sizes
		want []property
	}{
		{"a slot is granted while a grant again into it is under way", untracked, three, []property{grantLost}},
		{"a grant again is taken for landed when R has drained its lane", forgotten, sizes{lanes: 3, window: 1, messages: 2, parts: 1, failures: 2}, []property{grantLost}},
		{"new grants go before grants again", overtaking, two, []property{grantLost}},
		{"what was granted over other lanes is granted again too", allAgain, three, []property{grantLost}},
		{"grants again before the LaneDown of S", earlyRewrite, two, []property{grantLost}},
		{"LaneDown of S before its end is drained", earlyLaneDown, two, []property{grantLost}},
		{"Report before the end of R is drained", earlyReport, two, []property{ackedMissing, otherReceive, noReceive, givenBack}},
		{"Report before the end of R is drained, with parts", earlyReport, parts, []property{ackedMissing, noReceive, countedTwice, givenBack}},
		{"parts sent again before the Report", earlyResend, two, []property{otherReceive, noReceive, givenBack}},
		{"parts sent again of receives that the Report does not name", resendDone, two, []property{givenBack}},
		{"Report before the LaneDown of S", deafReport, two, []property{sentTooEarly}},
		{"parts acknowledged over other lanes must be in the Report too", ackedAnywhere, two, []property{ackedMissing}},
		{"parts sent again without leave", heedless, parts, []property{tooManyAgain}},
		{"a part lost twice needs leave twice", chargedTwice, sizes{lanes: 3, window: 1, messages: 1, parts: 1, failures: 2, again: 1}, []property{neverCompletes}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := model{tt.sizes, tt.wrong}.search()
			got := slices.Sorted(maps.Keys(f.broken))
			t.Logf("%v: %d states", tt.sizes, f.states)
			for _, bad := range got {
				t.Logf("%s:%s", bad, numbered(f.broken[bad]))
			}
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("broken properties (-want +got):\n%s", diff)
			}
		})
	}
}

// Lanes differ in nothing but what has happened to them: in whatever order they stand,
// a state is the same.
func TestOrderOfLanes(t *testing.T) {
	m := model{sizes: sizes{lanes: 3, window: 1, messages: 2, parts: 1, failures: 2, again: 1}}
	orders := [][maxLanes]int{{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	s := state{}
	for i := 0; !m.over(&s); i++ {
		for _, order := range orders {
			if diff := cmp.Diff(s.canonical(), s.renamed(order).canonical(), cmp.AllowUnexported(state{}, lane{}, control{})); diff != "" {
				t.Fatalf("after %d steps, lanes in order %v:\n%s", i, order, diff)
			}
		}
		steps := m.steps(&s, nil)
		if len(steps) == 0 {
			break
		}
		s = steps[7*i%len(steps)].to
	}
}

func numbered(trace []string) (text string) {
	for i, step := range trace {
		text += fmt.Sprintf("\n%3d. %s", i+1, step)
	}
	return text
}
