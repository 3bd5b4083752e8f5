package bootstrap

import (
	"fmt"
	"log/slog"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/stage"
)

// seatState is the state of a seat. It never goes back.
//
//	arriving ──► dialling ──► joined ──► leaving ──► closed
//
// Any state may be followed by closed; a member that is refused goes from dialling, or from joined, to leaving.
type seatState uint32

const (
	seatArriving seatState = 0 // its request to join has not arrived
	seatDialling seatState = 1 // the root connects to it
	seatJoined   seatState = 2 // messages go both ways
	seatLeaving  seatState = 3 // the last messages to it are being sent
	seatClosed   seatState = 4
)

func (s seatState) String() string {
	return [...]string{"arriving", "dialling", "joined", "leaving", "closed"}[s]
}

// A seat is the root's end of the connections with one member. It belongs to the root's goroutine.
type seat struct {
	state    stage.Stage[seatState]
	name     string // of the member's node and process
	join     *join  // nil while the member is arriving
	deadline time.Time
	refusal  *failure // why the member is refused; nil: it is not
	in       inbox
	dialing  *transport.Dialing
	out      outbox  // nil until the member can be reached
	pending  *gather // the member's call; nil: it has none
	expires  time.Time
	left     bool // it has left, and expects no answer
}

// serve handles what has happened on a seat. It reports whether something has.
func (r *Root) serve(s *seat) bool {
	before := s.state.At()
	found, err := r.progress(s)
	if err != nil {
		if s.state.At() == seatLeaving {
			s.closeLogged(r.host.Log)
		} else if s.state.At() != seatClosed {
			r.lost(s, err)
		}
	}
	return found || s.state.At() != before
}

// progress receives, connects and sends. An error means that the member is gone.
func (r *Root) progress(s *seat) (found bool, err error) {
	if s.state.At() < seatLeaving {
		m, err := s.in.poll()
		if err != nil {
			return false, err
		}
		if found = m != nil; found {
			if err := r.handle(s, m); err != nil {
				return true, err
			}
		}
	}
	if s.state.At() == seatDialling && s.out == nil {
		c, err := s.dialing.Poll()
		if err != nil {
			return found, fmt.Errorf("the root cannot connect to it: %w", err)
		}
		if c == nil {
			return found, nil
		}
		if s.out, err = newConnOutbox(c, r.seal); err != nil {
			return found, err
		}
	}
	if s.state.At() == seatDialling {
		r.reached(s)
	}
	if s.out == nil {
		return found, nil
	}
	if err := s.out.poll(); err != nil {
		return found, err
	}
	if s.state.At() == seatLeaving && s.out.idle() {
		s.closeLogged(r.host.Log)
	}
	return found, nil
}

// reached is called when the member can be reached.
func (r *Root) reached(s *seat) {
	if s.refusal != nil {
		s.refuse(s.refusal)
		return
	}
	s.state.Enter(seatJoined)
	r.joined()
}

// refuse sends the member the reason why it cannot take part.
func (s *seat) refuse(f *failure) {
	s.out.put(f.encode(0))
	s.state.Enter(seatLeaving)
}

// handle handles a message of a member.
func (r *Root) handle(s *seat, m []byte) error {
	state := s.state.At()
	switch {
	case state == seatArriving:
		return r.arrived(s, m)
	case m[0] == kindLeave:
		r.left(s)
		return nil
	case m[0] == kindGather && state == seatJoined && r.complete:
		g, err := decodeGather(m)
		if err != nil {
			return err
		}
		r.called(s, g)
		return nil
	}
	return fmt.Errorf("%w: message %d of a member that is %v", fault.ErrProtocol, m[0], state)
}

// arrived handles the first message of a member.
func (r *Root) arrived(s *seat, m []byte) error {
	j, err := decodeJoin(m)
	if err != nil {
		return err
	}
	h, err := handshake.DecodeHandle(&j.handle)
	if err != nil {
		return fmt.Errorf("%w: its handle: %w", fault.ErrProtocol, err)
	}
	s.join, s.deadline = j, time.Now().Add(j.timeout)
	s.refusal = r.reserve(s, j)
	s.state.Enter(seatDialling)
	if s.out == nil {
		s.dialing = r.host.Transport.Dial(h)
	}
	return nil
}

// left handles the end of a member that has said so.
func (r *Root) left(s *seat) {
	s.left = true
	if j := s.join; r.complete {
		r.calls.over(&failure{failedGone, fmt.Sprintf("rank %d (%s) has left the job", j.rank, s.name)})
	} else if r.members[j.rank] == s {
		r.fail(&failure{failedGone, fmt.Sprintf("rank %d (%s) has given up", j.rank, s.name)})
	}
	if s.out == nil || s.out.idle() {
		s.closeLogged(r.host.Log)
		return
	}
	s.state.Enter(seatLeaving)
}

// close closes the connections of the seat.
func (s *seat) close() error {
	if !s.state.Enter(seatClosed) {
		return nil
	}
	err := closeAll(s.in, s.out)
	if s.dialing != nil {
		_ = s.dialing.Close() // a connection that it has made is the outbox's
	}
	return err
}

func (s *seat) closeLogged(log *slog.Logger) {
	if err := s.close(); err != nil {
		log.Warn("bootstrap: a connection did not close", "rank", s.name, "err", err)
	}
}
