package failover

import (
	"fmt"
	"strings"
)

// property is what must hold. A step that breaks one names it.
type property string

const (
	grantLost      property = "a late grant overwrites one that the sender still needs"
	givenBack      property = "a part arrives in a buffer that was given back"
	noReceive      property = "a part arrives for which no receive is outstanding"
	otherReceive   property = "a part is counted for another receive"
	countedTwice   property = "a part is counted twice"
	sentTooEarly   property = "a send is done before its data is at the receiver"
	readTooLate    property = "a send is done while a lane may still read its buffer"
	ackedMissing   property = "a part is acknowledged and not in the Report: the connection ends"
	tooManyAgain   property = "more parts sent again are on their way than receives were posted for"
	usedTooEarly   property = "an index is used again while something of its old lane is on its way"
	outOfOrder     property = "a late grant is taken for a breach of the protocol: its lane fails"
	neverCompletes property = "lanes are left, and nothing goes on"
)

// mistake is something that the protocol forbids, or several.
type mistake uint32

const (
	untracked     mistake = 1 << iota // rule 3: a slot is granted while a repeated grant may land in it
	forgotten                         // rule 3: a repeated grant is taken for landed once its lane is drained at the receiver
	uncounted                         // rule 3: of two repeated grants for a slot the first to land stands for both
	overtaking                        // rule 3: new grants go before repeated ones
	elsewhere                         // rule 3: a grant is repeated over another lane while the first may land
	allAgain                          // rule 2: all grants are repeated, whatever lane carried them
	earlyRepeat                       // rule 2: grants are repeated before the sender's LaneDown
	earlyLaneDown                     // rule 1: the sender's LaneDown before its end is drained
	earlyReport                       // rule 2: Report before the receiver's end is drained
	deafReport                        // rule 2: Report before the sender's LaneDown
	earlyResend                       // rule 4: parts are sent again before the Report
	resendDone                        // rule 4: parts are sent again of receives that the Report does not name
	ackedAnywhere                     // rule 4: parts acknowledged over any lane must be in the Report
	heedless                          // rule 5: parts are sent again without credit
	chargedTwice                      // rule 5: a part that was lost twice needs credit twice
	unexpected                        // rule 3: the sender's processor ignores late grants only if a lane has failed
	earlyBye                          // rule 6: a clean close with receives outstanding
	earlyVacant                       // rule 7: the sender's index is free before the Report
)

// model is the protocol for some sizes, with mistakes or without.
type model struct {
	sizes
	wrong   mistake
	ordered bool // states whose lanes are in different orders differ
}

func (m model) has(w mistake) bool { return m.wrong&w != 0 }

// move says what is done, in words with numbers to fill in.
type move struct {
	words string
	args  [3]uint8
}

func words(format string, args ...int) move {
	mv := move{words: format}
	for i, a := range args {
		mv.args[i] = uint8(a)
	}
	return mv
}

func (m model) part(format string, p, l int) move {
	return words(format, p%m.parts+1, p/m.parts+1, l+1)
}

func (m move) String() string {
	var args []any
	for _, a := range m.args[:strings.Count(m.words, "%")] {
		args = append(args, a)
	}
	return fmt.Sprintf(m.words, args...)
}

// step is one thing that may happen next.
type step struct {
	move
	to   *state
	sure bool     // it comes about, whatever is lost, and even if neither side notices a failure by itself
	bad  property // that it breaks
}

// steps appends all that may happen next.
func (m model) steps(s *state, out []step) []step {
	out = m.receives(s, out)
	out = m.sends(s, out)
	for l := range m.lanes {
		out = m.travels(s, l, out)
		out = m.fails(s, l, out)
	}
	return m.hears(s, out)
}

// all returns the parts of message q.
func (m model) all(q int) set { return (1<<m.parts - 1) << (q * m.parts) }

// isPolled reports whether a lane is polled: the sender's processor writes its grants into the ring.
func (m model) isPolled(l int) bool { return l < m.polled }

func (m model) slot(q int) int { return q % m.window }

// outstanding returns the receive that is outstanding in a slot, or -1.
func (m model) outstanding(s *state, slot int) int {
	for q := range s.r.granted {
		if m.slot(q) == slot && m.all(q)&^s.r.arrived != 0 {
			return q
		}
	}
	return -1
}

// inService returns the number of lanes that a side uses.
func (m model) inService(s *state, w side) (n int) {
	for l := range m.lanes {
		if s.end(w).At(uint8(l)) == InService {
			n++
		}
	}
	return n
}

// over reports whether the connection has ended: a side has lost its last lane, and none is to join.
func (m model) over(s *state) bool {
	if s.s.closed && m.unfinished(s) == 0 {
		return true
	}
	return s.replaced == m.replaced && !s.r.closed && (m.inService(s, atSender) == 0 || m.inService(s, atReceiver) == 0)
}

// unfinished returns the messages that are not done at the sender.
func (m model) unfinished(s *state) (messages set) {
	for q := range m.messages {
		if !s.s.sent.has(q) || s.s.left[q] != 0 {
			messages |= 1 << q
		}
	}
	return messages
}

// complete reports whether all messages have arrived and are done, and both sides are done with all lanes that failed.
func (m model) complete(s *state) bool {
	for l := range m.lanes {
		if s.wires[l].broken && !s.r.closed && (s.s.At(uint8(l)) != Vacant || s.r.At(uint8(l)) != Vacant) {
			return false
		}
	}
	return m.unfinished(s) == 0 && s.r.arrived == 1<<(m.messages*m.parts)-1 && (s.r.closed || !m.closes)
}

// standing says where both sides stand.
func (m model) standing(s *state) string {
	text := fmt.Sprintf("R has granted %d and counted parts %v; messages %v are not done at S, which has credit for %d",
		s.r.granted, s.r.arrived.numbers(), m.unfinished(s).numbers(), s.s.credit.left)
	for l := range m.lanes {
		text += fmt.Sprintf("; lane %d is %v at S, %v at R", l+1, s.s.At(uint8(l)), s.r.At(uint8(l)))
	}
	return text
}
