package conn

import "fmt"

// State is the phase of a connection's life.
//
//	         set-up of the first lanes ended     the lanes are stopped
//	Opening ───────────────────────────► Open ──────────────────────► Stopped
//	   │                                  │                              │
//	   ├──── the lanes are stopped ───────┼────────────────────────────► │
//	   │                                  │                              │
//	   └──────────────────────────────────┴──── the owner called Close ──┴────► Closed
//
// The state does not say whether the connection has ended: Conn.Ended may return an error in each state.
type State uint32

const (
	Opening State = 0 // the first lanes are being set up
	Open    State = 1 // the first set-up is over; lanes may fail and join
	Stopped State = 2 // all lanes are stopped or being stopped; no lane comes into service
	Closed  State = 3 // the owner has called Close; lanes may linger until the peer closes too
)

func (s State) String() string {
	switch s {
	case Opening:
		return "opening"
	case Open:
		return "open"
	case Stopped:
		return "stopped"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("state %d", uint32(s))
}
