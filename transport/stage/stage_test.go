package stage_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"ncclmesh/transport/stage"
)

type age uint32

const last = 3

// A life goes on, and never back; a state that it has passed is not entered.
func TestEnter(t *testing.T) {
	for from := range age(last + 1) {
		for to := range age(last + 1) {
			var s stage.Stage[age]
			if got := s.Enter(from); got != (from > 0) {
				t.Errorf("the beginning on to %d: %v", from, got)
			}
			if got, want := s.Enter(to), to > from; got != want || s.At() != max(from, to) {
				t.Errorf("%d on to %d: %v, and it is in %d; want %v, %d", from, to, got, s.At(), want, max(from, to))
			}
		}
	}
}

// Of many that enter a state at once one does.
func TestEnterOnce(t *testing.T) {
	var s stage.Stage[age]
	var entered atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for to := range age(last + 1) {
				if s.Enter(to) {
					entered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := entered.Load(); n > last || n < 1 || s.At() != last {
		t.Errorf("%d states were entered, of %d; it is in %d", n, last, s.At())
	}
}
