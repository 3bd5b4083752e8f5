package lane

import (
	"fmt"
	"time"
)

// State is the state of a lane.
//
//	      Connect      both sides validated it//	Made ──────────► Connected ──────────► Up
//	│                  │                 │
//	└──── a failure ───┴──► Down ◄───────┘
//	                         │ ▲
//	                         ▼ │ (Up, Made, Connected, when the connection ends)
//	                       Stopped
//
// The set-up of a connection takes lanes from Made to Up, or Down. A carrier whose lane breaks takes
// the lane Down and reports that to the connection, which stops it. A lane that is Down never comes up
// again: a new lane replaces it. When a connection ends it stops all of its lanes.
type State uint8

const (
	Made      State = 0 // this side's half exists
	Connected State = 1 // it can send to the peer's half
	Up        State = 2 // in service
	Down      State = 3 // out of service, for the reason that Why gives
	Stopped   State = 4 // no transfer of the lane touches memory any longer
)

func (s State) String() string {
	switch s {
	case Made:
		return "made"
	case Connected:
		return "connected"
	case Up:
		return "up"
	case Down:
		return "down"
	case Stopped:
		return "stopped"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// State returns the state of the lane.
func (l *Lane) State() State { return l.state }

// InService reports whether the lane carries messages.
func (l *Lane) InService() bool { return l.state == Up }

// Why returns the reason that the lane was not taken into service or went out of it; nil if there is none.
func (l *Lane) Why() error { return l.why }

// predecessor holds the state before each state that Enter accepts: the arrows of the drawing that are not
// failures.
var predecessor = map[State]State{Connected: Made, Up: Connected, Stopped: Down}

// Enter changes the state to Connected, Up or Stopped if the lane is in the state before that. It reports
// whether the lane is in state s now. A lane that has failed or was stopped meanwhile does not come up again.
func (l *Lane) Enter(s State) bool {
	if from, known := predecessor[s]; known && l.state == from {
		l.state = s
	}
	return l.state == s
}

// Fail takes the lane out of service. why replaces an earlier reason.
func (l *Lane) Fail(why error) {
	l.why = why
	if l.state == Up {
		l.DownSince = time.Now()
	}
	if l.state != Stopped {
		l.state = Down
	}
}

// Deactivate takes a healthy lane out of service, because its connection ends.
func (l *Lane) Deactivate() {
	if l.state != Stopped {
		l.state = Down
	}
}

// NodeFault is a local resource error of a node that kept a lane from service. It does not count against the
// lane's path.
type NodeFault struct {
	Node string
	Err  error
}

func (f *NodeFault) Error() string { return f.Node + ": " + f.Err.Error() }
func (f *NodeFault) Unwrap() error { return f.Err }
