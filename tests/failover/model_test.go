package failover

import (
	"fmt"
	"strings"
)

// property is what must hold; a step that breaks one names it.
type property string

const (
	grantLost      property = "a late grant overwrites one that the sender has not read"
	givenBack      property = "a part lands in a buffer that was given back"
	noReceive      property = "a part comes for which no receive is outstanding"
	otherReceive   property = "a part is counted for another receive"
	countedTwice   property = "a part is counted twice"
	sentTooEarly   property = "a send completes before its data is at the receiver"
	ackedMissing   property = "a part is acknowledged and not in the Report: the connection ends"
	tooManyAgain   property = "more parts sent again are under way than receives were posted for"
	neverCompletes property = "lanes are left, and nothing goes on"
)

// mistake is one that the protocol forbids, or more of them.
type mistake uint16

const (
	untracked     mistake = 1 << iota // rule 3: a slot is granted while a grant again into it is under way
	forgotten                         // rule 3: it is taken for landed once its lane is drained at the receiver
	overtaking                        // rule 3: new grants go before grants again
	allAgain                          // rule 2: all that is outstanding is granted again, over whatever it went
	earlyRewrite                      // rule 2: grants again before the sender's LaneDown
	earlyLaneDown                     // rule 1: the sender's LaneDown before its end is drained
	earlyReport                       // rule 2: Report before the receiver's end is drained
	deafReport                        // rule 2: Report before the sender's LaneDown
	earlyResend                       // rule 4: parts sent again before the Report
	resendDone                        // rule 4: parts sent again of receives that the Report does not name
	ackedAnywhere                     // rule 4: parts acknowledged over any lane must be in the Report
	heedless                          // rule 5: parts sent again without leave
	chargedTwice                      // rule 5: a part that was lost twice needs leave twice
)

// model is the protocol for some sizes, with mistakes or without.
type model struct {
	sizes
	wrong mistake
}

func (m model) has(w mistake) bool { return m.wrong&w != 0 }

// move names what is done, in words with numbers to fill in.
type move struct {
	words string
	args  [4]uint8
}

func words(format string, args ...int) move {
	mv := move{words: format}
	for i, a := range args {
		mv.args[i] = uint8(a)
	}
	return mv
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
	to   state
	sure bool     // it comes about, whatever is lost and whoever notices nothing
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

// all is the parts of message q.
func (m model) all(q int) set { return (1<<m.parts - 1) << (q * m.parts) }

func (m model) slot(q int) int { return q % m.window }

// outstanding is the receive that is outstanding in a slot, or -1.
func (m model) outstanding(s *state, slot int) int {
	for q := range int(s.granted) {
		if m.slot(q) == slot && m.all(q)&^s.arrived != 0 {
			return q
		}
	}
	return -1
}

// inService is the lanes that a side may use.
func (m model) inService(s *state, w side) (n int) {
	for l := range m.lanes {
		if *s.lanes[l].end(w) == 0 {
			n++
		}
	}
	return n
}

// over reports whether the connection has ended: a side has lost its last lane, and
// none comes back.
func (m model) over(s *state) bool {
	return int(s.replaced) == m.replaced && (m.inService(s, sender) == 0 || m.inService(s, receiver) == 0)
}

// complete reports whether all messages are where they belong, and lanes that failed
// are free at both ends.
func (m model) complete(s *state) bool {
	all := set(1<<(m.messages*m.parts) - 1)
	for l := range m.lanes {
		if x := &s.lanes[l]; x.broken && (x.s&free == 0 || x.r&free == 0) {
			return false
		}
	}
	return s.done == all && s.arrived == all
}

// left says where both sides stand.
func (m model) left(s *state) string {
	return fmt.Sprintf("R has granted %d, counted parts %v, is to grant %v again; S has sent %v, of which parts %v are done; parts %v are to be sent again, %d may be",
		s.granted, s.arrived.numbers(), s.regrant.numbers(), s.sent.numbers(), s.done.numbers(), s.pending.numbers(), s.leave)
}
