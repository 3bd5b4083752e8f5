package dataport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/lobby"
	"ncclmesh/transport/sock"
)

// Limits of connections that have not proved themselves; fewer in all where
// descriptors are few. A peer sets the lanes of all its connections up at once, so
// that one address may have many.
const (
	maxStrangers = 512
	maxPerSource = 256
)

const (
	strangerTTL = 5 * time.Second       // for a connection to prove itself, before TimeScale
	acceptPause = 50 * time.Millisecond // when there is no descriptor left
)

// Reasons of refusals, as counted and logged.
const (
	reasonCrowded   = "too many unauthenticated connections"
	reasonSource    = "too many unauthenticated connections from one address"
	reasonAccept    = "it could not be accepted here"
	reasonSlow      = "not authenticated in time"
	reasonTruncated = "ended in the middle of its first message"
	reasonMalformed = "malformed first message"
	reasonUnknown   = "no such lane is expected"
	reasonMAC       = "wrong MAC"
)

// accept takes connections until the listener is closed.
func (e *Endpoint) accept(ln sock.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the kernel's queue keeps the peers waiting
			e.refuse(reasonAccept, netip.AddrPort{}, limit.Own(err))
			select {
			case <-e.ctx.Done():
				return
			case <-e.cfg.Clock.After(e.scaled(acceptPause)):
			}
			continue
		}
		s := e.lobby.Enter(c, c.Remote())
		if s == nil {
			e.refuse(reasonCrowded, c.Remote(), nil)
			_ = c.Close()
			continue
		}
		e.wg.Go(func() { guard.Run(func() { e.receive(s) }, e.caught) })
	}
}

// receive is the listener's side of the proof.
func (e *Endpoint) receive(s *lobby.Stranger[sock.Conn]) {
	_ = s.Conn.SetDeadline(time.Now().Add(e.scaled(strangerTTL)))
	call, welcome, reason, err := e.hear(s)
	fate := e.lobby.Leave(s)
	given := false // the connection belongs to who expected it
	defer func() {
		if !given {
			_ = s.Conn.Close()
		}
	}()
	switch {
	case fate == lobby.LobbyEnded:
		return
	case fate == lobby.OverShare:
		e.refuse(reasonSource, s.Source, nil)
		return
	case fate == lobby.OverCrowd:
		e.refuse(reasonCrowded, s.Source, nil)
		return
	case err != nil:
		if reason != "" {
			e.refuse(reason, s.Source, err)
		}
		return
	}
	if call.hop != nil {
		given = e.giveHop(call, s, welcome[:])
	} else {
		e.giveLane(call, s, welcome[:])
	}
}

// giveLane gives the stream of a connection that has proved to be a lane to who expects it. The stream is made before the
// expectation is met, so that it stands where this node has no descriptor for it.
func (e *Endpoint) giveLane(call *Call, s *lobby.Stranger[sock.Conn], welcome []byte) {
	stream, err := e.stream(s.Conn)
	if err != nil {
		e.refuse(reasonAccept, s.Source, limit.Own(err))
		return
	}
	if !e.meet(call) {
		e.refuse(reasonUnknown, s.Source, nil)
		_ = stream.Close()
		return
	}
	// The lane counts as this side's before the dialler hears so.
	call.lane(stream)
	_, _ = s.Conn.Write(welcome) // on an error the lane finds out for itself
}

// giveHop gives a connection that has proved to be a hop to who expects it, and reports whether it did. The welcome goes out
// first: behind it come the bytes of the circuit.
func (e *Endpoint) giveHop(call *Call, s *lobby.Stranger[sock.Conn], welcome []byte) bool {
	if err := s.Conn.SetPatience(e.patience()); err != nil {
		e.refuse(reasonAccept, s.Source, limit.Own(err))
		return false
	}
	if !e.meet(call) {
		e.refuse(reasonUnknown, s.Source, nil)
		return false
	}
	_, _ = s.Conn.Write(welcome) // on an error the hop finds out for itself
	_ = s.Conn.SetDeadline(time.Time{})
	call.hop(s.Conn)
	return true
}

// patience is what lanes and hops have with a silent end: all questions for a sign of life fit the time that it has, where
// that is more than a second. Sent bytes may stay unacknowledged for ever, because that would also end a connection whose
// peer lives and does not read, and a slow peer is no error.
func (e *Endpoint) patience() sock.Patience {
	silence := e.scaled(e.cfg.KeepAlive)
	idle, interval := max(time.Second, silence/2), max(time.Second, silence/6)
	idle, interval = idle.Truncate(time.Second), interval.Truncate(time.Second)
	return sock.Patience{Idle: idle, Interval: interval, Count: min(max(1, int((silence-idle)/interval)), 3)}
}

// stream returns the stream of a connection, which is still to be closed.
func (e *Endpoint) stream(c sock.Conn) (*sock.Stream, error) {
	if err := c.SetPatience(e.patience()); err != nil {
		return nil, err
	}
	return c.Stream()
}

// hear reads and checks what a stranger says.
func (e *Endpoint) hear(s *lobby.Stranger[sock.Conn]) (call *Call, welcome [handshake.LaneWelcomeSize]byte, reason string, err error) {
	var hello [handshake.LaneHelloSize]byte
	if n, err := io.ReadFull(s.Conn, hello[:]); err != nil {
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			reason = reasonSlow
		case n > 0:
			reason = reasonTruncated
		}
		return nil, welcome, reason, err
	}
	e.lobby.Heard(s) // if it was turned out before, Leave says so
	name, err := handshake.HearLaneHello(hello)
	if err != nil {
		return nil, welcome, reasonMalformed, err
	}
	call = e.look(name)
	if call == nil {
		return nil, welcome, reasonUnknown, fmt.Errorf("session %v connection %d lane %d", name.Session, name.Conn, name.Lane)
	}
	if err := handshake.CheckLaneHello(call.end.Key, hello, call.end.Tokens); err != nil {
		return nil, welcome, reasonMAC, err
	}
	return call, handshake.LaneWelcome(call.end.Key, hello, call.end.Tokens), "", nil
}

const maxLogged = 64 // refusals that are logged; later ones are only counted

// refuse counts a refusal, and logs the first of each reason. Of one that could not
// be accepted the address is not known.
func (e *Endpoint) refuse(reason string, from netip.AddrPort, err error) {
	e.mu.Lock()
	if e.stats.Refused == nil {
		e.stats.Refused = map[string]uint64{}
	}
	e.stats.Refused[reason]++
	if limit.IsOwn(err) {
		e.lacked = err
		e.lacks++
	}
	log := e.stats.Refused[reason] == 1 && len(e.stats.Refused) <= maxLogged
	e.mu.Unlock()
	if log {
		args := []any{"reason", reason}
		if from.IsValid() {
			args = append([]any{"from", from}, args...)
		}
		if err != nil {
			args = append(args, "err", err)
		}
		e.log.Warn("a connection to a data port was refused; more of this kind are only counted", args...)
	}
}
