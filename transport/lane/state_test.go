package lane

import (
	"errors"
	"testing"
)

func TestStateString(t *testing.T) {
	for s, want := range map[State]string{
		Made: "made", Connected: "connected", Up: "up", Down: "down", Stopped: "stopped", 9: "state 9",
	} {
		if got := s.String(); got != want {
			t.Errorf("state %d is called %q, want %q", uint8(s), got, want)
		}
	}
}

// What takes a lane from each state to which; a lane that has stopped stays so,
// whatever is said against it, and only what is said gives it a reason.
func TestStateTransitions(t *testing.T) {
	before, now := errors.New("what was known"), errors.New("what is known now")
	steps := []struct {
		name   string
		step   func(*Lane)
		to     map[State]State
		reason error // after it
	}{
		{"connected", func(l *Lane) { l.Enter(Connected) }, map[State]State{Made: Connected}, before},
		{"proved", func(l *Lane) { l.Enter(Up) }, map[State]State{Connected: Up}, before},
		{"failed", func(l *Lane) { l.Fail(now) }, map[State]State{Made: Down, Connected: Down, Up: Down, Down: Down, Stopped: Stopped}, now},
		{"at rest", (*Lane).Rest, map[State]State{Made: Down, Connected: Down, Up: Down, Down: Down, Stopped: Stopped}, before},
		{"stopped", func(l *Lane) { l.Enter(Stopped) }, map[State]State{Down: Stopped, Stopped: Stopped}, before},
	}
	for _, tt := range steps {
		for from, want := range tt.to {
			l := &Lane{state: from, why: before}
			tt.step(l)
			if l.State() != want || l.InService() != (want == Up) {
				t.Errorf("%s when it was %v: %v, in service %v; want %v", tt.name, from, l.State(), l.InService(), want)
			}
			if l.Why() != tt.reason {
				t.Errorf("%s when it was %v: the reason is %v, want %v", tt.name, from, l.Why(), tt.reason)
			}
		}
	}
}

// A new lane has no reason against it and carries nothing yet.
func TestStateAtFirst(t *testing.T) {
	l := &Lane{}
	if l.State() != Made || l.InService() || l.Why() != nil {
		t.Errorf("%v, in service %v, reason %v", l.State(), l.InService(), l.Why())
	}
}

// told is what a lane says when it breaks.
type told struct {
	Sink
	requests []int
	errs     []error
}

func (s *told) Failed(_ *Lane, request int, err error) {
	s.requests, s.errs = append(s.requests, request), append(s.errs, err)
}

// A lane that breaks tells of every request that breaks with it, and keeps the first
// reason: the others are its consequences.
func TestBreak(t *testing.T) {
	first, second := errors.New("the cable"), errors.New("a flushed write")
	s := &told{}
	l := &Lane{Conn: &Conn{Sink: s}, state: Up}
	l.Break(3, first)
	l.Break(4, second)
	if l.State() != Down || l.Why() != first {
		t.Errorf("%v for %v, want it down for %v", l.State(), l.Why(), first)
	}
	if len(s.errs) != 2 || s.requests[0] != 3 || s.requests[1] != 4 || s.errs[0] != first || s.errs[1] != second {
		t.Errorf("told of requests %v with %v", s.requests, s.errs)
	}
}

// What a node lacked is found in a reason, and says which node.
func TestNodeFault(t *testing.T) {
	cause := errors.New("too many open files")
	var err error = &NodeFault{Node: "spark1", Err: cause}
	if !errors.Is(err, cause) || err.Error() != "spark1: too many open files" {
		t.Errorf("%v", err)
	}
}
