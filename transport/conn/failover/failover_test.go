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

// Nothing that may happen breaks a property, and whatever has happened, all goes on as long as a lane is left.
func TestProtocolHolds(t *testing.T) {
	spaces := []sizes{
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1},
		{lanes: 3, window: 1, messages: 2, parts: 1, failures: 1},
		{lanes: 2, window: 2, messages: 3, parts: 1, failures: 1},
		{lanes: 2, window: 1, messages: 2, parts: 2, failures: 1, again: 1},
		{lanes: 3, window: 1, messages: 2, parts: 1, failures: 2, again: 1},
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 2, replaced: 2, again: 1},
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1, rekeyed: 2},
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1, closes: true},
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1, rekeyed: 1, polled: 1},
		{lanes: 2, window: 2, messages: 3, parts: 1, failures: 1, polled: 2},
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
			for bad, history := range f.broken {
				t.Errorf("%s:%s", bad, numbered(history))
			}
		})
	}
}

// Each mistake is found, by what it breaks; the history says how.
func TestMistakesAreFound(t *testing.T) {
	two := sizes{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1}
	three := sizes{lanes: 3, window: 1, messages: 2, parts: 1, failures: 1}
	parts := sizes{lanes: 2, window: 1, messages: 1, parts: 2, failures: 1, again: 1}
	rekeyed := sizes{lanes: 2, window: 1, messages: 2, parts: 1, rekeyed: 2}
	replaced := sizes{lanes: 2, window: 1, messages: 1, parts: 1, failures: 1, replaced: 1}
	for _, tt := range []struct {
		name  string
		wrong mistake
		sizes
		want []property
	}{
		{"a slot is granted while a repeated grant may land in it", untracked, three, []property{grantLost}},
		{"a repeated grant is taken for landed when R has drained its lane", forgotten, sizes{lanes: 3, window: 1, messages: 2, parts: 1, failures: 2}, []property{grantLost}},
		{"of two repeated grants the first to land stands for both", uncounted, rekeyed, []property{grantLost}},
		{"new grants go before repeated ones", overtaking, two, []property{grantLost}},
		{"a grant is repeated over another lane while the first may land", elsewhere, rekeyed, []property{grantLost}},
		{"late grants are ignored only if a lane has failed", unexpected, sizes{lanes: 2, window: 1, messages: 1, parts: 1, rekeyed: 1, polled: 1}, []property{outOfOrder}},
		{"what was granted over other lanes is granted again too", allAgain, three, []property{grantLost}},
		{"grants are repeated before the LaneDown of S", earlyRepeat, two, []property{grantLost}},
		{"LaneDown of S before its end is drained", earlyLaneDown, two, []property{grantLost}},
		{"Report before the end of R is drained", earlyReport, two, []property{ackedMissing, grantLost, givenBack}},
		{"Report before the end of R is drained, with parts", earlyReport, parts, []property{ackedMissing, noReceive, countedTwice, givenBack}},
		{"parts are sent again before the Report", earlyResend | heedless, two, []property{otherReceive, noReceive, givenBack, grantLost, tooManyAgain}},
		{"parts are sent again of receives that the Report does not name", resendDone, two, []property{givenBack, grantLost}},
		{"Report before the LaneDown of S", deafReport, two, []property{sentTooEarly}},
		{"parts acknowledged over other lanes must be in the Report too", ackedAnywhere, two, []property{ackedMissing}},
		{"parts are sent again without credit", heedless, parts, []property{tooManyAgain}},
		{"a part lost twice needs credit twice", chargedTwice, sizes{lanes: 3, window: 1, messages: 1, parts: 1, failures: 2, again: 1}, []property{neverCompletes}},
		{"a clean close with receives outstanding", earlyBye, sizes{lanes: 2, window: 1, messages: 1, parts: 1, failures: 1, closes: true}, []property{sentTooEarly, neverCompletes}},
		{"an index of S is free before the Report", earlyVacant, replaced, []property{usedTooEarly, neverCompletes}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := model{sizes: tt.sizes, wrong: tt.wrong}.search()
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

// Lanes differ in nothing but what has happened to them: a search that takes states for one if only the order of their lanes
// differs finds as many as there are.
func TestOrderOfLanes(t *testing.T) {
	for _, z := range []sizes{
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1, again: 1},
		{lanes: 2, window: 1, messages: 2, parts: 1, failures: 1, rekeyed: 1},
		{lanes: 3, window: 1, messages: 1, parts: 1, failures: 1, replaced: 1, again: 1},
		{lanes: 2, window: 1, messages: 1, parts: 2, failures: 1, closes: true},
	} {
		t.Run(z.String(), func(t *testing.T) {
			apart := model{sizes: z, ordered: true}.search()
			if f := (model{sizes: z}).search(); f.states != apart.classes || apart.states <= apart.classes {
				t.Errorf("%d states; %d if all orders of lanes differ, which are %d in whatever order", f.states, apart.states, apart.classes)
			}
		})
	}
}

func numbered(history []string) (text string) {
	for i, step := range history {
		text += fmt.Sprintf("\n%3d. %s", i+1, step)
	}
	return text
}
