package conn

import "fmt"

// State is how far a connection has come.
//
//	         the first lanes serve          memory was taken away
//	Opening ──────────────────────► Open ──────────────────────► Stopped
//	   │                             │                              │
//	   ├─── memory was taken away ───┼──────────────────────────►   │
//	   │                             │                              │
//	   └─────────────────────────────┴──── its owner closed it ─────┴────► Closed
//
// Why a connection is over is another matter: its ending may be known in each of them.
type State uint32

const (
	Opening State = 0 // its first lanes are being set up
	Open    State = 1 // they have been in service, or are lost: lanes fail and join
	Stopped State = 2 // its lanes are stopped for good, or are being stopped: none comes into service
	Closed  State = 3 // and so they are, or linger until the peer has closed too: its owner is done with it
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
