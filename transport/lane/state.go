package lane

import (
	"fmt"
	"time"
)

// State is how far a lane has come.
//
//	        Connect      both sides proved it
//	Made ──────────► Connected ──────────► Up
//	  │                  │                 │
//	  └──── a failure ───┴──► Down ◄───────┘
//	                           │ ▲
//	                           ▼ │ (Up, Made, Connected, when the connection ends)
//	                         Stopped
//
// The set-up of a connection takes lanes from Made to Up, or Down. A carrier that finds
// its lane broken takes it Down and tells the connection, which stops it; nothing comes
// up again: what takes its place is another lane. When the connection ends it
// stops every lane.
type State uint8

const (
	Made      State = 0 // this side's half exists
	Connected State = 1 // it can send to the peer's half
	Up        State = 2 // in service
	Down      State = 3 // out of service, for the reason that Why gives
	Stopped   State = 4 // and nothing that it carried touches memory any more
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

// State is how far the lane has come.
func (l *Lane) State() State { return l.state }

// InService reports whether the lane carries messages.
func (l *Lane) InService() bool { return l.state == Up }

// Why is what has kept the lane from service, or taken it out; nil while nothing has.
func (l *Lane) Why() error { return l.why }

// comesFrom is the state from which a lane is taken on to another: the arrows of the drawing that are nobody's failure.
var predecessor = map[State]State{Connected: Made, Up: Connected, Stopped: Down}

// Enter takes the lane on to Connected, Up or Stopped, and reports whether it is there now. Where no arrow leads there the lane stays as it
// is: one that has failed, or that its connection has stopped, while it was connected or proved is not to come up again.
func (l *Lane) Enter(s State) bool {
	if from, known := predecessor[s]; known && l.state == from {
		l.state = s
	}
	return l.state == s
}

// Fail takes the lane out of service; why replaces an earlier reason.
func (l *Lane) Fail(why error) {
	l.why = why
	if l.state == Up {
		l.DownSince = time.Now()
	}
	if l.state != Stopped {
		l.state = Down
	}
}

// Rest takes the lane out of service for no fault of its own: its connection ends.
func (l *Lane) Deactivate() {
	if l.state != Stopped {
		l.state = Down
	}
}

// NodeFault is a reason against a lane that is no evidence against its path: what a
// node lacked for it.
type NodeFault struct {
	Node string
	Err  error
}

func (f *NodeFault) Error() string { return f.Node + ": " + f.Err.Error() }
func (f *NodeFault) Unwrap() error { return f.Err }
