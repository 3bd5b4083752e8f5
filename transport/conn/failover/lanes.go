package failover

import "fmt"

// MaxLanes is the most lanes that a connection has at a time.
const MaxLanes = 32

// State is how far the failover of a lane has come at one side of the connection. It belongs to an index, which one lane after
// another may have.
//
//	        Joined            Failed              Drained                 PeerDown                 Reported
//	Vacant ────────► InService ──────► Draining ──────────► LocalDrained ──────────► BothDrained ──────────► Vacant
//	                     │                │                                               ▲
//	                     │ PeerDown       │ PeerDown                 Drained              │
//	                     └────────────────┴──────────► PeerDrained ───────────────────────┘
//
// At a sender PeerClosed also leads from LocalDrained and BothDrained to Vacant: a receiver that has closed the connection with
// no receive outstanding sends no Report, because it has all messages.
type State uint8

const (
	Vacant       State = 0 // no lane: nothing of an earlier lane can arrive, and a new lane may have the index
	InService    State = 1 // the lane carries messages
	Draining     State = 2 // this side has stopped its end; what the lane carried may still arrive here
	PeerDrained  State = 3 // as Draining, and the peer's LaneDown has come
	LocalDrained State = 4 // nothing arrives here any more, and LaneDown was sent; the peer's has not come
	BothDrained  State = 5 // nothing arrives at either side: the receiver may report, and the sender waits for the Report
)

func (s State) String() string {
	switch s {
	case Vacant:
		return "vacant"
	case InService:
		return "in service"
	case Draining:
		return "draining"
	case PeerDrained:
		return "draining, drained at the peer"
	case LocalDrained:
		return "drained here"
	case BothDrained:
		return "drained at both ends"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Event is something that happens to a lane at one side.
type Event uint8

const (
	Joined     Event = 0 // the lane comes into service
	Failed     Event = 1 // this side has a reason not to use the lane any more
	Drained    Event = 2 // this side's end is stopped, and nothing arrives over it any more
	PeerDown   Event = 3 // the peer's LaneDown has come
	Reported   Event = 4 // at the sender: the Report has come; at the receiver: it is time to send it, if the lane allows it
	PeerClosed Event = 5 // at the sender: the receiver has closed the connection with no receive outstanding
	events           = 6
)

func (e Event) String() string {
	switch e {
	case Joined:
		return "joined"
	case Failed:
		return "failed"
	case Drained:
		return "drained"
	case PeerDown:
		return "peer down"
	case Reported:
		return "reported"
	case PeerClosed:
		return "peer closed"
	}
	return fmt.Sprintf("event %d", uint8(e))
}

// Actions is a set of what the caller of Step must do, in the order of the constants.
type Actions uint8

const (
	Begin        Actions = 1 << iota // the lane is in service: messages may use it
	Stop                             // use the lane for nothing new, and stop its end; Drained must follow
	SendLaneDown                     // send the peer LaneDown
	Settle                           // receiver: send the Report, and repeat grants, see Grants.Settle; sender: settle the parts, see Parts.Settle
	Close                            // release this side's end
)

// Has reports whether a set has all actions of another.
func (a Actions) Has(b Actions) bool { return a&b == b }

// transition is what follows an event: a new state, and what to do.
type transition struct {
	to State
	do Actions
}

// transitions has every event that changes a state. An event that is not here changes nothing: a lane fails once, and a
// message about a lane that has gone is late.
var transitions = [BothDrained + 1][events]transition{
	Vacant:       {Joined: {InService, Begin}},
	InService:    {Failed: {Draining, Stop}, PeerDown: {PeerDrained, Stop}},
	Draining:     {Drained: {LocalDrained, SendLaneDown}, PeerDown: {PeerDrained, 0}},
	PeerDrained:  {Drained: {BothDrained, SendLaneDown}},
	LocalDrained: {PeerDown: {BothDrained, 0}, PeerClosed: {Vacant, Settle | Close}},
	BothDrained:  {Reported: {Vacant, Settle | Close}, PeerClosed: {Vacant, Settle | Close}},
}

// Lanes is the state of all lanes of a connection at one side. The zero value has no lanes.
type Lanes struct {
	lanes [MaxLanes]struct {
		epoch uint32
		state State
	}
}

// At returns the state of an index.
func (s *Lanes) At(index uint8) State { return s.lanes[index].state }

// Step handles an event of the lane with an index and an epoch, and returns what to do. It returns 0, and changes nothing, if the
// event has no meaning in the lane's state, or if the index has a lane of another epoch now. Joined gives a vacant index to the
// lane.
func (s *Lanes) Step(index uint8, epoch uint32, e Event) Actions {
	if int(index) >= MaxLanes {
		return 0
	}
	l := &s.lanes[index]
	if e != Joined && l.epoch != epoch {
		return 0
	}
	t := transitions[l.state][e]
	if t == (transition{}) {
		return 0
	}
	if t.do.Has(Begin) {
		l.epoch = epoch
	}
	l.state = t.to
	return t.do
}
