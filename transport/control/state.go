package control

import "fmt"

// State is how far a session has come.
//
//	      a Bye is said, or heard           both have said it, and know
//	Open ───────────────────────► Leaving ─────────────────────────────► Over
//	  │                              │                                     ▲
//	  └──────────────────────────────┴── refused, silent for too long, ────┘
//	                                     a broken protocol
//
// A session whose link is cut stays what it is, and looks for another.
type State uint32

const (
	Open    State = 0 // messages can be sent
	Leaving State = 1 // no more are accepted; those that were are still delivered
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
