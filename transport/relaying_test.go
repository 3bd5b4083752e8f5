package transport

import "testing"

// A process that only examines the mesh, or is about to end, relays no circuits.
func TestRetired(t *testing.T) {
	ending := &Transport{}
	ending.retiring.Store(true)
	for _, tt := range []struct {
		t    *Transport
		want error
	}{{&Transport{}, nil}, {&Transport{opts: Options{Observes: true}}, errObserves}, {ending, errRetired}} {
		if got := tt.t.refuseCircuits(); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}
