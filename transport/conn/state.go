package conn

import (
	"fmt"
	"sync/atomic"
)

// State is how far a connection has come.
//
//	         the first lanes serve          memory was taken away
//	Opening ──────────────────────► Open ──────────────────────► Stopped
//	   │                             │                              │
//	   ├─── memory was taken away ───┼──────────────────────────►   │
//	   │                             │                              │
//	   └─────────────────────────────┴──── its owner closed it ─────┴────► Closed
//
// Why a connection is over is another matter, its ending: that may be known in each of them, and no state says so.
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

// life is the state of a connection. It may be read without the mutex.
type life struct{ state atomic.Uint32 }

// is returns the state.
func (l *life) is() State { return State(l.state.Load()) }

// enter takes a connection on to a state, and reports whether this call did: no arrow leads back, nor to where it is.
func (l *life) enter(to State) bool {
	for {
		from := l.state.Load()
		if from >= uint32(to) {
			return false
		}
		if l.state.CompareAndSwap(from, uint32(to)) {
			return true
		}
	}
}
