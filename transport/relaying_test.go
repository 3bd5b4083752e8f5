package transport

import "testing"

// Who is there to look, or about to end, takes nothing on.
func TestRetired(t *testing.T) {
	ending := &Transport{}
	ending.retire.Store(true)
	for _, tt := range []struct {
		t    *Transport
		want error
	}{{&Transport{}, nil}, {&Transport{opts: Options{Observes: true}}, errObserves}, {ending, errRetired}} {
		if got := tt.t.retired(); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}
