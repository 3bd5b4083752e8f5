package failover

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// sizes bound what is searched: how many there are of each thing.
type sizes struct {
	lanes, window, messages, parts int
	failures                       int  // lanes that fail, one after another or at once
	replaced                       int  // lanes that join later, at an index that is vacant again
	again                          int  // parts that may be sent again at a time; 0: any number
	rekeyed                        int  // how often all outstanding grants are sent again, because memory has new keys
	polled                         int  // lanes, the first ones, whose grants the sender's processor writes into the ring
	closes                         bool // the receiver closes once it has all messages, whatever its lanes do
}

// The most that a state has room for. Queues panic beyond.
const (
	maxLanes    = 3
	maxWindow   = 2
	maxMessages = 4
	maxAll      = 7 // parts of all messages
	maxQueue    = 8 // entries of a queue
)

// plenty is the allowance for parts that are sent again if their number is not bounded.
const plenty = 200

// side is one half of the connection.
type side int

const (
	atSender side = iota
	atReceiver
)

// set is a set of messages, or of parts, by number from 0. The parts of message q are q*parts and those that follow.
type set uint8

func (s set) has(i int) bool { return s&(1<<i) != 0 }

// numbers counts from 1, as histories do.
func (s set) numbers() (all []int) {
	for i := range 8 {
		if s.has(i) {
			all = append(all, i+1)
		}
	}
	return all
}

// queue is a first-in first-out queue of up to maxQueue numbers from 1 to 15.
type queue uint32

func (q *queue) push(v int) {
	shift := 0
	for ; shift < 4*maxQueue && *q>>shift != 0; shift += 4 {
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

// A part or grant on its way is its number and 1, plus again if it was sent before.
const again = 8

// wire is the network's end of a lane: what is on its way. All of it belongs to the lane of one epoch.
type wire struct {
	epoch    uint32
	broken   bool  // it has failed: what is on its way may be lost
	grants   queue // to the sender's ring: messages
	parts    queue // to the receiver's buffers
	landed   queue // parts in their buffers, not polled by the receiver
	acks     set   // parts whose acknowledgement is on its way to the sender
	confirms queue // repeated grants that have landed, whose completion is on its way to the receiver
	said     [2]bool
	reported bool // mistakes only: the Report was sent before its time
}

// message is one of the session's messages.
type message struct {
	kind    kind
	lane    uint8
	epoch   uint32
	named   set // receives that are not complete
	arrived set // parts
	more    int // credit
}

type kind uint8

const (
	laneDown kind = iota + 1
	report
	moreCredit // a Report that is about no lane
	bye
)

// sending is the sender: its half of the protocol, and what package conn keeps.
type sending struct {
	Lanes
	credit  Credit
	parts   [maxMessages]Parts
	left    [maxMessages]uint32 // parts that are neither acknowledged nor settled
	ring    [maxWindow]uint8    // message, plus 1, whose grant each slot holds
	sent    set                 // messages
	reports [maxLanes]message   // Reports that wait until their lane is drained at both ends
	closed  bool                // the receiver's Bye has come
	failed  bool                // a lane has failed
}

// receiving is the receiver: its half of the protocol, and what package conn keeps.
type receiving struct {
	Lanes
	grants    Grants
	allowance Allowance
	granted   int // messages
	arrived   set // parts
	overtaken set // mistakes only: messages whose grants are to be sent again although their slots have been granted anew
	closed    bool
}

// state is all there is at one time, of both sides and of what is on its way between them.
type state struct {
	wires [maxLanes]wire
	s     sending
	r     receiving
	toS   []message // the session
	toR   []message

	failures, replaced, rekeyed int
}

// begin returns the state before anything has happened.
func (m model) begin() *state {
	s := &state{}
	limit := m.again
	if limit == 0 {
		limit = plenty
	}
	s.r.grants, s.r.allowance = NewGrants(m.window), NewAllowance(limit)
	for l := range m.lanes {
		s.join(uint8(l), 0)
	}
	return s
}

// join takes a lane into service at both sides.
func (s *state) join(l uint8, epoch uint32) (ok bool) {
	s.wires[l] = wire{epoch: epoch}
	return s.s.Step(l, epoch, Joined) == Begin && s.r.Step(l, epoch, Joined) == Begin
}

// clone returns a copy that shares nothing with s.
func (s *state) clone() *state {
	c := *s
	g := &c.r.grants
	g.lane, g.again, g.inFlight = slices.Clone(g.lane), slices.Clone(g.again), slices.Clone(g.inFlight)
	c.toS, c.toR = slices.Clone(s.toS), slices.Clone(s.toR)
	return &c
}

// end returns a side's lanes.
func (s *state) end(w side) *Lanes {
	if w == atSender {
		return &s.s.Lanes
	}
	return &s.r.Lanes
}

// key identifies a state. Lanes differ in nothing but what has happened to them, so that states are alike if their lanes are in
// another order. Epochs are left out, because nothing of an earlier lane is on its way when an index is used again.
type key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// key returns the key of a state: that of its lanes in the order in which the text is the least.
func (m model) key(s *state) key {
	if m.ordered {
		text := m.text(s, orders[m.lanes][0])
		return key{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text)}
	}
	var least []byte
	for _, order := range orders[m.lanes] {
		if text := m.text(s, order); least == nil || slices.Compare(text, least) < 0 {
			least = text
		}
	}
	return key{maphash.Bytes(seeds[0], least), maphash.Bytes(seeds[1], least)}
}

// orders has, by their number, all orders that lanes may have.
var orders = [maxLanes + 1][][]uint8{
	1: {{0}},
	2: {{0, 1}, {1, 0}},
	3: {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}},
}

// text writes all of a state that matters for what may follow, with its lanes in an order.
func (m model) text(s *state, order []uint8) []byte {
	b := make([]byte, 0, 128)
	add := func(all ...uint8) { b = append(b, all...) }
	flag := func(f bool) uint8 {
		if f {
			return 1
		}
		return 0
	}
	var name [maxLanes]uint8 // the place of each lane in the order
	for to, l := range order {
		name[l] = uint8(to)
		x := &s.wires[l]
		for _, q := range []queue{x.grants, x.parts, x.landed, x.confirms} {
			add(uint8(q), uint8(q>>8), uint8(q>>16), uint8(q>>24))
		}
		add(uint8(x.acks), uint8(s.s.At(l)), uint8(s.r.At(l)), flag(x.broken)|flag(x.said[0])<<1|flag(x.said[1])<<2|flag(x.reported)<<3|flag(m.isPolled(int(l)))<<4)
		m.addMessage(&b, &s.s.reports[l], &name)
	}
	for q := range m.messages {
		p := &s.s.parts[q]
		add(uint8(s.s.left[q]), uint8(p.Lost), uint8(p.charged))
		for k := range m.parts {
			settled := s.s.left[q]&(1<<k) == 0 && s.r.arrived.has(q*m.parts+k) // whatever carried it
			if !s.s.sent.has(q) || settled {
				add(0)
				continue
			}
			add(1 + name[p.Lanes[k]])
		}
	}
	for i := range m.window {
		slot := uint8(i)
		add(s.s.ring[i], flag(s.r.grants.Waits(slot)), uint8(s.r.grants.inFlight[i]))
		if m.outstanding(s, i) < 0 && !s.r.grants.Waits(slot) && s.r.grants.inFlight[i] == 0 {
			add(0) // the next grant replaces it
			continue
		}
		add(1 + name[s.r.grants.Lane(slot)])
	}
	add(uint8(s.s.sent), uint8(s.r.arrived), uint8(s.r.overtaken), uint8(s.r.granted), uint8(s.failures), uint8(s.replaced), uint8(s.rekeyed), flag(s.s.closed)|flag(s.r.closed)<<1|flag(s.s.failed && m.polled > 0)<<2)
	if m.again > 0 {
		add(uint8(s.s.credit.left), uint8(s.r.allowance.left))
	}
	for _, session := range [][]message{s.toS, s.toR} {
		add(uint8(len(session)))
		for i := range session {
			m.addMessage(&b, &session[i], &name)
		}
	}
	return b
}

// addMessage writes a message of the session.
func (m model) addMessage(b *[]byte, v *message, name *[maxLanes]uint8) {
	var l, more uint8
	if v.kind == laneDown || v.kind == report {
		l = name[v.lane]
	}
	if m.again > 0 {
		more = uint8(v.more)
	}
	*b = append(*b, uint8(v.kind), l, uint8(v.named), uint8(v.arrived), more)
}

func (z sizes) String() string {
	s := fmt.Sprintf("%d lanes, window %d, %d messages of %d parts, %d failures", z.lanes, z.window, z.messages, z.parts, z.failures)
	for _, more := range []struct {
		n    int
		what string
	}{{z.replaced, "replaced"}, {z.again, "sent again at once"}, {z.rekeyed, "times with new keys"}, {z.polled, "polled"}} {
		if more.n > 0 {
			s += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	if z.closes {
		s += ", closed"
	}
	return s
}
