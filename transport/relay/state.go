package relay

import "fmt"

// HopState is how far a hop has come that this process has asked for.
//
//	Numbered ──► Asked ── answered ──► Standing ──► HopOver    dropped is called where that comes from the other side
//	    │          │                                  ▲
//	    └──────────┴──────── a Drop, from either ─────┘
type HopState uint32

const (
	Numbered HopState = 0
	Asked    HopState = 1 // the peer is to answer
	Standing HopState = 2
	HopOver  HopState = 3
)

func (s HopState) String() string {
	return name(uint32(s), "numbered", "asked", "standing", "over")
}

// CircuitState is how far a circuit has come that this process carries for others.
//
//	Making ── answered ──► Carrying ──► Ended     its slot is free when it is over, and its set-up has returned
//	   └──────────────────────────────► Failed
type CircuitState uint32

const (
	Making   CircuitState = 0
	Carrying CircuitState = 1
	Ended    CircuitState = 2 // after it was carried
	Failed   CircuitState = 3 // before
)

func (s CircuitState) String() string {
	return name(uint32(s), "making", "carrying", "ended", "failed")
}

// over reports whether nothing more is to come of the circuit.
func (s CircuitState) over() bool { return s >= Ended }

func name(s uint32, names ...string) string {
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", s)
}
