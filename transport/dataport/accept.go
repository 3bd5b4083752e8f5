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

// Limits of connections that have not authenticated yet. The total is lower if the process may have few descriptors.
// One address may have many, because a peer sets up the lanes of all its connections at once.
const (
	maxPending   = 512
	maxPerSource = 256
)

const (
	authTimeout = 5 * time.Second       // for a connection to authenticate, before TimeScale
	acceptPause = 50 * time.Millisecond // after no descriptor was left
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

// accept accepts connections until the listener is closed.
func (e *Endpoint) accept(ln sock.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // peers stay in the kernel's queue meanwhile
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

// receive runs the listener's side of the handshake.
func (e *Endpoint) receive(s *lobby.Stranger[sock.Conn]) {
	_ = s.Conn.SetDeadline(time.Now().Add(e.scaled(authTimeout)))
	call, welcome, reason, err := e.readHello(s)
	eviction := e.lobby.Leave(s)
	delivered := false // the connection was passed to its owner
	defer func() {
		if !delivered {
			_ = s.Conn.Close()
		}
	}()
	switch {
	case eviction == lobby.LobbyEnded:
		return
	case eviction == lobby.OverShare:
		e.refuse(reasonSource, s.Source, nil)
		return
	case eviction == lobby.OverCrowd:
		e.refuse(reasonCrowded, s.Source, nil)
		return
	case err != nil:
		if reason != "" {
			e.refuse(reason, s.Source, err)
		}
		return
	}
	if call.hop != nil {
		delivered = e.deliverHop(call, s, welcome[:])
	} else {
		e.deliverLane(call, s, welcome[:])
	}
}

// deliverLane passes the stream of an authenticated lane to the caller of Expect. It makes the stream before it claims
// the expectation, so that the expectation remains if this node has no descriptor for the stream.
func (e *Endpoint) deliverLane(call *Call, s *lobby.Stranger[sock.Conn], welcome []byte) {
	stream, err := e.stream(s.Conn)
	if err != nil {
		e.refuse(reasonAccept, s.Source, limit.Own(err))
		return
	}
	if !e.claim(call) {
		e.refuse(reasonUnknown, s.Source, nil)
		_ = stream.Close()
		return
	}
	// This side has the lane before the dialler receives the welcome.
	call.lane(stream)
	_, _ = s.Conn.Write(welcome) // on an error the lane fails by itself
}

// deliverHop passes the connection of an authenticated hop to the caller of ExpectHop, and reports whether it did. It
// sends the welcome first, because the bytes of the circuit follow it on the connection.
func (e *Endpoint) deliverHop(call *Call, s *lobby.Stranger[sock.Conn], welcome []byte) bool {
	if err := s.Conn.SetPatience(e.patience()); err != nil {
		e.refuse(reasonAccept, s.Source, limit.Own(err))
		return false
	}
	if !e.claim(call) {
		e.refuse(reasonUnknown, s.Source, nil)
		return false
	}
	_, _ = s.Conn.Write(welcome) // on an error the hop fails by itself
	_ = s.Conn.SetDeadline(time.Time{})
	call.hop(s.Conn)
	return true
}

// patience returns the TCP keep-alive settings of lanes and hops. If KeepAlive is more than a second, all keep-alive
// probes fit into it. Unacknowledged bytes have no time limit, because such a limit would also end a connection whose
// peer is alive and does not read, and a slow peer is no error.
func (e *Endpoint) patience() sock.Patience {
	silence := e.scaled(e.cfg.KeepAlive)
	idle, interval := max(time.Second, silence/2), max(time.Second, silence/6)
	idle, interval = idle.Truncate(time.Second), interval.Truncate(time.Second)
	return sock.Patience{Idle: idle, Interval: interval, Count: min(max(1, int((silence-idle)/interval)), 3)}
}

// stream returns the stream of a connection. The caller still has to close the connection.
func (e *Endpoint) stream(c sock.Conn) (*sock.Stream, error) {
	if err := c.SetPatience(e.patience()); err != nil {
		return nil, err
	}
	return c.Stream()
}

// readHello reads and verifies the hello of a pending connection.
func (e *Endpoint) readHello(s *lobby.Stranger[sock.Conn]) (call *Call, welcome [handshake.LaneWelcomeSize]byte, reason string, err error) {
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
	e.lobby.Heard(s) // if the connection was evicted before, Leave returns the reason
	name, err := handshake.HearLaneHello(hello)
	if err != nil {
		return nil, welcome, reasonMalformed, err
	}
	call = e.lookUp(name)
	if call == nil {
		return nil, welcome, reasonUnknown, fmt.Errorf("session %v connection %d lane %d", name.Session, name.Conn, name.Lane)
	}
	if err := handshake.CheckLaneHello(call.end.Key, hello, call.end.Tokens); err != nil {
		return nil, welcome, reasonMAC, err
	}
	return call, handshake.LaneWelcome(call.end.Key, hello, call.end.Tokens), "", nil
}

const maxLogged = 64 // refusals that are logged; later ones are only counted

// refuse counts a refusal, and logs the first one of each reason. The address is not known if the connection could not
// be accepted.
func (e *Endpoint) refuse(reason string, from netip.AddrPort, err error) {
	e.mu.Lock()
	if e.stats.Refused == nil {
		e.stats.Refused = map[string]uint64{}
	}
	e.stats.Refused[reason]++
	if limit.IsOwn(err) {
		e.lastLimit = err
		e.limitHits++
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
