package stage

import "sync/atomic"

// Stage is a state of a life whose states follow one another: some may be left out, none comes again. T numbers them in their
// order, from 0, which the zero value is in. Its methods may be called from any goroutine.
type Stage[T ~uint32] struct{ at atomic.Uint32 }

// At returns the state.
func (s *Stage[T]) At() T { return T(s.at.Load()) }

// Enter goes on to a state, and reports whether this call did: it does not where that state is reached, or passed.
func (s *Stage[T]) Enter(to T) bool {
	for {
		from := s.at.Load()
		if from >= uint32(to) {
			return false
		}
		if s.at.CompareAndSwap(from, uint32(to)) {
			return true
		}
	}
}
