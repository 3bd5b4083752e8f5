package dataport

import (
	"fmt"
	"io"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// Limits of connections that have not authenticated yet. The total is lower if the process may have few descriptors.
// One address may have many, because a peer sets up the lanes of all its connections at once.
const (
	maxPending   = 512
	maxPerSource = 256
)

// authTimeout is how long a connection may take to authenticate, before scaling.
const authTimeout = 5 * time.Second

// Reasons for refusals beside those of package accept, as counted and logged.
const (
	reasonMalformed = "malformed first message"
	reasonUnknown   = "no such lane is expected"
	reasonMAC       = "wrong MAC"
)

// authenticate runs the listener's side of the handshake, and passes the lane or hop on to its owner.
func (e *Endpoint) authenticate(c *accept.Conn) error {
	var hello [handshake.LaneHelloSize]byte
	if _, err := io.ReadFull(c.Conn, hello[:]); err != nil {
		return err
	}
	if err := c.HelloRead(); err != nil {
		return err
	}
	name, err := handshake.HearLaneHello(hello)
	if err != nil {
		return &accept.Refusal{Reason: reasonMalformed, Err: err}
	}
	call := e.lookUp(name)
	if call == nil {
		return &accept.Refusal{Reason: reasonUnknown, Err: fmt.Errorf("session %v connection %d lane %d", name.Session, name.Conn, name.Lane)}
	}
	if err := handshake.CheckLaneHello(call.end.Key, hello, call.end.Tokens); err != nil {
		return &accept.Refusal{Reason: reasonMAC, Err: err}
	}
	welcome := handshake.LaneWelcome(call.end.Key, hello, call.end.Tokens)
	c.Authenticated()
	if call.hop != nil {
		return e.deliverHop(call, c.Conn, welcome[:])
	}
	return e.deliverLane(call, c.Conn, welcome[:])
}

// deliverLane passes the stream of an authenticated lane to the caller of Expect. It makes the stream before it claims
// the expectation, so that the expectation remains if this node has no descriptor for the stream.
func (e *Endpoint) deliverLane(call *Call, c sock.Conn, welcome []byte) error {
	stream, err := e.stream(c)
	if err != nil {
		return &accept.Refusal{Reason: accept.AcceptFailed, Err: limit.Own(err)}
	}
	if !e.claim(call) {
		_ = stream.Close()
		return &accept.Refusal{Reason: reasonUnknown}
	}
	// This side has the lane before the dialler receives the welcome.
	call.lane(stream)
	_, _ = c.Write(welcome) // on an error the lane fails by itself
	_ = c.Close()
	return nil
}

// deliverHop passes the connection of an authenticated hop to the caller of ExpectHop. It sends the welcome first, because
// the bytes of the circuit follow it on the connection.
func (e *Endpoint) deliverHop(call *Call, c sock.Conn, welcome []byte) error {
	if err := c.SetPatience(e.patience()); err != nil {
		return &accept.Refusal{Reason: accept.AcceptFailed, Err: limit.Own(err)}
	}
	if !e.claim(call) {
		return &accept.Refusal{Reason: reasonUnknown}
	}
	_, _ = c.Write(welcome) // on an error the hop fails by itself
	_ = c.SetDeadline(time.Time{})
	call.hop(c)
	return nil
}

// patience returns the TCP keep-alive settings of lanes and hops. If KeepAlive is more than a second, all keep-alive
// probes fit into it. Unacknowledged bytes have no time limit, because such a limit would also end a connection whose
// peer is alive and does not read, and a slow peer is no error.
func (e *Endpoint) patience() sock.Patience {
	silence := e.cfg.Clock.Scaled(e.cfg.KeepAlive)
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
