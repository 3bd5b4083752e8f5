package relay

import "fmt"

// HopState is the state of a hop that this process has requested.
//
//	HopNew ──► HopRequested ── reply ──► HopUp ──► HopOver    dropped is called if the other side ended it
//	   │            │                                ▲
//	   └────────────┴── a CircuitClose from either ─────┘
type HopState uint32

const (
	HopNew       HopState = 0
	HopRequested HopState = 1 // the reply is pending
	HopUp        HopState = 2
	HopOver      HopState = 3
)

func (s HopState) String() string {
	return name(uint32(s), "new", "requested", "up", "over")
}

// CircuitState is the state of a circuit that this process relays.
//
//	Making ── reply ──► Forwarding ──► Ended     its slot is released when it is over and its set-up has returned
//	   └─────────────────────────────► Failed
type CircuitState uint32

const (
	Making     CircuitState = 0
	Forwarding CircuitState = 1
	Ended      CircuitState = 2 // after it was up
	Failed     CircuitState = 3 // before it was up
)

func (s CircuitState) String() string {
	return name(uint32(s), "making", "forwarding", "ended", "failed")
}

// over reports whether the circuit has ended or failed.
func (s CircuitState) over() bool { return s >= Ended }

func name(s uint32, names ...string) string {
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", s)
}
