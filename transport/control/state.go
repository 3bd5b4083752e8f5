package control

import "fmt"

// State is the state of a session.
//
//	      a Bye is sent, or received        both have sent it, and know
//	Open ───────────────────────► Leaving ─────────────────────────────► Over
//	  │                              │                                     ▲
//	  └──────────────────────────────┴── refused, silent for too long, ────┘
//	                                     protocol violation
//
// A session whose link broke keeps its state, and dials another link.
type State uint32

const (
	Open    State = 0 // messages can be sent
	Leaving State = 1 // no more are accepted; accepted ones are still delivered
	Over    State = 2
)

func (s State) String() string {
	switch s {
	case Open:
		return "open"
	case Leaving:
		return "leaving"
	case Over:
		return "over"
	}
	return fmt.Sprintf("state %d", uint32(s))
}
