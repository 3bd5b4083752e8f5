package lane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/fault"
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

// Each step leads from some states to another; in any other state the lane stays as it was and the step returns false. A lane
// that has stopped stays stopped, and only a failure changes its reason.
func TestStateTransitions(t *testing.T) {
	before, now := errors.New("what was known"), errors.New("what is known now")
	steps := []struct {
		name   string
		step   func(*Lane) bool
		to     map[State]State
		reason error // after it
	}{
		{"made", enters(Made), map[State]State{Made: Made}, before},
		{"connected", enters(Connected), map[State]State{Made: Connected, Connected: Connected}, before},
		{"validated", enters(Up), map[State]State{Connected: Up, Up: Up}, before},
		{"down", enters(Down), map[State]State{Down: Down}, before},
		{"failed", func(l *Lane) bool { l.Fail(now); return true }, map[State]State{Made: Down, Connected: Down, Up: Down, Down: Down, Stopped: Stopped}, now},
		{"at rest", func(l *Lane) bool { l.Deactivate(); return true }, map[State]State{Made: Down, Connected: Down, Up: Down, Down: Down, Stopped: Stopped}, before},
		{"stopped", enters(Stopped), map[State]State{Down: Stopped, Stopped: Stopped}, before},
	}
	for _, tt := range steps {
		for from := Made; from <= Stopped; from++ {
			want, leads := tt.to[from]
			if !leads {
				want = from
			}
			l := &Lane{state: from, why: before}
			if taken := tt.step(l); taken != leads {
				t.Errorf("%s when it was %v: taken %v, want %v", tt.name, from, taken, leads)
			}
			if l.State() != want || l.InService() != (want == Up) {
				t.Errorf("%s when it was %v: %v, in service %v; want %v", tt.name, from, l.State(), l.InService(), want)
			}
			if l.Why() != tt.reason {
				t.Errorf("%s when it was %v: the reason is %v, want %v", tt.name, from, l.Why(), tt.reason)
			}
		}
	}
}

// enters returns a step that calls Enter.
func enters(s State) func(*Lane) bool { return func(l *Lane) bool { return l.Enter(s) } }

// A new lane is in state Made and has no reason.
func TestStateAtFirst(t *testing.T) {
	l := &Lane{}
	if l.State() != Made || l.InService() || l.Why() != nil {
		t.Errorf("%v, in service %v, reason %v", l.State(), l.InService(), l.Why())
	}
}

// recorder is a connection that records the calls of its lane.
type recorder struct{ calls []string }

func (b *recorder) Fail(err error)             { b.calls = append(b.calls, "fail: "+err.Error()) }
func (b *recorder) Suspect(_ *Lane, err error) { b.calls = append(b.calls, "suspect: "+err.Error()) }
func (b *recorder) ReportFailure(_ *Lane, err error) {
	b.calls = append(b.calls, "failure: "+err.Error())
}
func (b *recorder) PortDown(Port) { b.calls = append(b.calls, "port down") }

// A lane in service that breaks goes out of service and is reported once, because later errors are
// consequences. An error that is not the lane's fault ends the connection, and the lane stays.
func TestBreak(t *testing.T) {
	cable, flushed := errors.New("the cable"), errors.New("a flushed write")
	usage := fmt.Errorf("%w: memory", fault.ErrUsage)
	for _, tt := range []struct {
		name  string
		from  State
		errs  []error
		to    State
		why   error
		calls []string
	}{
		{"in service", Up, []error{cable, flushed}, Down, cable, []string{"failure: the cable"}},
		{"being set up", Connected, []error{cable}, Connected, nil, nil},
		{"stopped", Stopped, []error{cable}, Stopped, nil, nil},
		{"the user's fault", Up, []error{usage}, Up, nil, []string{"fail: invalid use: memory"}},
		{"the peer's fault, of a lane that failed", Down, []error{fault.ErrProtocol}, Down, nil, []string{"fail: peer broke the protocol"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &recorder{}
			l := &Lane{Conn: &Shared{Owner: b}, state: tt.from}
			for _, err := range tt.errs {
				l.Break(err)
			}
			if l.State() != tt.to || l.Why() != tt.why {
				t.Errorf("%v for %v, want %v for %v", l.State(), l.Why(), tt.to, tt.why)
			}
			if diff := cmp.Diff(tt.calls, b.calls); diff != "" {
				t.Errorf("calls of the connection (-want +got):\n%s", diff)
			}
		})
	}
}

// A lane keeps its first failure report.
func TestMarkFailed(t *testing.T) {
	l := &Lane{}
	if l.Failure() != nil {
		t.Errorf("a new lane has failed: %v", l.Failure())
	}
	first := errors.New("queue pair fatal")
	l.MarkFailed(first)
	l.MarkFailed(errors.New("device fatal"))
	if l.Failure() != first {
		t.Errorf("failure is %v, want %v", l.Failure(), first)
	}
}

// A local resource error is found in a lane's reason, with the node's name.
func TestNodeFault(t *testing.T) {
	cause := errors.New("too many open files")
	var err error = &NodeFault{Node: "spark1", Err: cause}
	if !errors.Is(err, cause) || err.Error() != "spark1: too many open files" {
		t.Errorf("%v", err)
	}
}
