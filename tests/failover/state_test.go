package failover

import "cmp"

// sizes bound the space: what there is of each thing.
type sizes struct {
	lanes, window, messages, parts int
	failures                       int // lanes that fail, one after another or at once
	replaced                       int // lanes that come back
	again                          int // parts sent again that may be under way; 0: any number
}

// The most that a state has room for; queues panic beyond.
const (
	maxLanes   = 3
	maxWindow  = 2
	maxAll     = 7 // parts of all messages
	maxQueue   = 8 // entries of a queue
	maxControl = 6 // messages of the control channel, one way
)

// side is one half of the connection.
type side int

const (
	sender side = iota
	receiver
)

// end is what one side knows of its end of a lane; 0 is in service.
type end uint8

const (
	said     end = 1 << iota // its LaneDown is sent
	told                     // the peer's has come
	stopped                  // drained: nothing lands here any more
	reported                 // the receiver's Report is sent
	free                     // the side has done with the lane
)

// set is a set of messages, or of parts, by number from 0. The parts of message q are
// q*parts and those that follow.
type set uint8

func (s set) has(i int) bool { return s&(1<<i) != 0 }

// numbers counts from 1, as traces do.
func (s set) numbers() (all []int) {
	for i := range 8 {
		if s.has(i) {
			all = append(all, i+1)
		}
	}
	return all
}

// queue is a first-in first-out of up to maxQueue numbers from 1 to 15.
type queue uint32

func (q *queue) push(v int) {
	shift := 0
	for ; *q>>shift != 0; shift += 4 {
	}
	if v < 1 || v > 15 || shift >= 4*maxQueue {
		panic("failover: queue too small for these sizes")
	}
	*q |= queue(v) << shift
}

func (q queue) head() int { return int(q & 15) }

func (q *queue) pop() int {
	v := q.head()
	*q >>= 4
	return v
}

// A part on its way is its number and one, and this when it is marked as sent again.
const marked = 8

// lane is one lane: what is on the way, and what both sides remember of it.
type lane struct {
	s, r   end
	broken bool // it failed: what is on the way may be lost

	grants   queue // to the sender's ring: sequences
	parts    queue // to the receiver's buffers
	landed   queue // parts in their buffers, not polled
	acks     set   // parts whose acknowledgement is on the way to the sender
	confirms set   // grants again that have landed, completion on the way to the receiver

	posted set // at the sender: parts that went last over this lane, not acknowledged
	acked  set // and acknowledged, as long as the receiver has not polled them

	granted   set // at the receiver: receives without a part whose grant went last over this lane
	rewritten set // grants again over this lane that are not confirmed
}

func (l *lane) end(w side) *end {
	if w == sender {
		return &l.s
	}
	return &l.r
}

// control is a message of the receiver's on the control channel. The sender's are all
// LaneDown.
type control struct {
	kind    kind
	lane    uint8
	named   set   // receives
	arrived set   // parts
	more    uint8 // parts that may be sent again
}

type kind uint8

const (
	laneDown kind = iota + 1
	report
	moreAgain // Report that only brings leave to send parts again
)

// state is all there is at one time, of both sides and of what is between them.
type state struct {
	lanes [maxLanes]lane

	// The sender's.
	ring    [maxWindow]uint8 // the sequence in each slot
	sent    set              // messages posted
	done    set              // parts acknowledged, or settled by a Report
	pending set              // parts to be sent again
	charged set              // parts sent again, not done
	leave   uint8            // parts that may be sent again

	// The receiver's.
	granted uint8 // receives granted
	regrant set   // receives to be granted again
	arrived set   // parts polled
	allowed uint8 // parts sent again that have not arrived, or may yet be sent

	// The control channel.
	toS     [maxControl]control
	waiting uint8 // of these
	toR     queue // LaneDown, by lane and one

	failures, replaced uint8
}

func (s *state) tell(c control) {
	s.toS[s.waiting] = c
	s.waiting++
}

func (s *state) hear() control {
	c := s.toS[0]
	copy(s.toS[:], s.toS[1:])
	s.waiting--
	s.toS[s.waiting] = control{}
	return c
}

// canonical is the state with its lanes in an order of their own: lanes differ in
// nothing but what has happened to them.
func (s state) canonical() state {
	var keys [maxLanes][4]uint64
	var order [maxLanes]int
	for i := range s.lanes {
		keys[i], order[i] = s.key(i), i
	}
	for i := 1; i < maxLanes; i++ {
		for k := i; k > 0 && less(keys[order[k]], keys[order[k-1]]); k-- {
			order[k], order[k-1] = order[k-1], order[k]
		}
	}
	return s.renamed(order)
}

// renamed is the state with the lanes of order, in this order.
func (s state) renamed(order [maxLanes]int) state {
	c := s
	var renamed [maxLanes]uint8
	for to, from := range order {
		c.lanes[to], renamed[from] = s.lanes[from], uint8(to)
	}
	for i := range c.toS[:c.waiting] {
		if c.toS[i].kind != moreAgain {
			c.toS[i].lane = renamed[c.toS[i].lane]
		}
	}
	c.toR = 0
	for q := s.toR; q != 0; {
		c.toR.push(int(renamed[q.pop()-1]) + 1)
	}
	return c
}

// key is all that a state has about one lane; lanes of equal keys can change places.
func (s *state) key(i int) [4]uint64 {
	l := &s.lanes[i]
	var heard, hears uint64
	for k, c := range s.toS[:s.waiting] {
		if c.kind != moreAgain && int(c.lane) == i {
			heard |= 1 << k
		}
	}
	for k, q := 0, s.toR; q != 0; k++ {
		if q.pop() == i+1 {
			hears |= 1 << k
		}
	}
	var broken uint64
	if l.broken {
		broken = 1
	}
	return [4]uint64{
		uint64(l.grants)<<32 | uint64(l.parts),
		uint64(l.landed)<<32 | uint64(l.s)<<24 | uint64(l.r)<<16 | uint64(l.acks)<<8 | uint64(l.confirms),
		uint64(l.posted)<<24 | uint64(l.acked)<<16 | uint64(l.granted)<<8 | uint64(l.rewritten),
		heard<<16 | hears<<8 | broken,
	}
}

func less(a, b [4]uint64) bool {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), cmp.Compare(a[2], b[2]), cmp.Compare(a[3], b[3])) < 0
}
