package conn

import "testing"

// A connection goes on, and never back; a state that it has passed is not entered.
func TestState(t *testing.T) {
	const n = int(Closed) + 1
	for from := range n {
		for to := range n {
			var l life
			l.state.Store(uint32(from))
			want := State(max(from, to))
			if got := l.enter(State(to)); got != (to > from) || l.is() != want {
				t.Errorf("%v on to %v: %v, and it is %v; want %v, %v", State(from), State(to), got, l.is(), to > from, want)
			}
		}
	}
}
