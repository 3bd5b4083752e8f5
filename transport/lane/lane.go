package lane

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/topology"
)

// Kind says what carries a lane. Its values are those of the handshake messages.
type Kind uint8

const (
	Verbs   Kind = handshake.LaneVerbs   // a queue pair
	TCP     Kind = handshake.LaneTCP     // a socket
	Circuit Kind = handshake.LaneCircuit // queue pairs through relays
)

func (k Kind) String() string {
	switch k {
	case Verbs:
		return "queue pair"
	case TCP:
		return "socket"
	case Circuit:
		return "circuit"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Spec describes a lane that a connection tries to establish.
type Spec struct {
	Port   Port
	From   topology.Address // address of the port
	Peer   handshake.Port
	To     netip.Addr // address of the peer's port
	Weight float64    // speed in Mb/s for the division of traffic; 0 means what both ports can do
	Route  *Route     // the relays on the path; nil for a direct path
	Tier   int        // index of the path's tier in package path; 0 is the best
}

// Shared is the part of a connection that its lanes use. It does not change once they are connected.
type Shared struct {
	ID      uint32
	Sending bool
	Probe   bool // the connection only validates paths and carries no messages
	Session *control.Session
	Sink    Sink
	Owner   Owner
	Ring    *ControlRing // the memory that the peer's device writes

	PeerBase uint64             // address of the peer's control ring
	PeerKeys [MaxDomains]uint32 // remote keys of it, by index of the peer's domain
}

// String names the connection by both nodes, the sender first, and by the processes if both are on one node.
func (c *Shared) String() string {
	from, to := c.Session.Both()
	if !c.Sending {
		from, to = to, from
	}
	return fmt.Sprintf("%s -> %s conn %d", from, to, c.ID)
}

// Lane is one lane of a connection.
type Lane struct {
	Carrier     Carrier
	*stats.Lane // counters of bytes and parts, sent or received; on the statistics page while the lane is in service
	Conn        *Shared
	Index       uint8  // among the lanes of the connection
	Epoch       uint32 // epoch of the set-up that made the lane; 0 is the connection's first
	Port        Port
	Domain      int              // index of its domain among the connection's
	From        topology.Address // address of the port
	Peer        handshake.Port
	Route       *Route         // the relays on the path; nil for a direct path
	Tier        int            // tier of its path, if this side knows it; 0 is the best
	Remote      handshake.Lane // the peer's half; only its address until the peer has answered

	Weight  float64 // estimated speed of its path in Mb/s, set by package path; see Rate
	Backlog int64   // bytes sent and not delivered, counted by package conn

	Delivered uint64 // parts that the peer has received
	Latest    uint64 // number of the message that was posted last among those

	Carried   float64   // bytes per weight that the other lanes had carried when this one joined
	DownSince time.Time // time at which it went out of service

	Reached atomic.Bool // the peer's kernel has answered; its process may still be slow

	speed   speed
	failure atomic.Pointer[error] // the first failure report
	state   State
	why     error
}

// New creates a lane of a connection, without a carrier.
func New(c *Shared, index int, p Spec) *Lane {
	l := &Lane{
		Lane: new(stats.Lane), Conn: c, Index: uint8(index), Port: p.Port, From: p.From,
		Peer: p.Peer, Route: p.Route, Tier: p.Tier, Remote: handshake.Lane{Addr: p.To}, Weight: p.Weight,
	}
	if l.Weight <= 0 {
		l.Weight = float64(max(1, min(p.Port.Now().Mbps(), int(p.Peer.SpeedMbps))))
	}
	return l
}

// String names the lane by its index, the sender's port and the receiver's port.
func (l *Lane) String() string {
	from, to := l.Port.Now().Short(), PeerPort(l.Peer).Short()
	if !l.Conn.Sending {
		from, to = to, from
	}
	return fmt.Sprintf("lane %d %s -> %s", l.Index, from, to)
}

// Path returns the lane's name and the relays of its path, as far as this side knows them.
func (l *Lane) Path() string { return fmt.Sprintf("%v%v", l, l.Route) }

// Name returns the identity of this half of the lane. It is unique among the halves that a process has at a
// time.
func (l *Lane) Name() Name {
	n := Name{Conn: l.Conn.ID, Sending: l.Conn.Sending, Epoch: l.Epoch, Lane: l.Index}
	if l.Conn.Session != nil {
		n.Session = l.Conn.Session.ID()
	}
	return n
}

// Name identifies one half of a lane within a process.
type Name struct {
	Session handshake.SessionID
	Conn    uint32
	Sending bool
	Epoch   uint32
	Lane    uint8
}

// PeerPort returns a port with the fields of the peer's description that name it.
func PeerPort(p handshake.Port) *topology.Port {
	return &topology.Port{Device: p.Device, Num: p.Num, Netdev: p.Netdev}
}

// Half returns the description of this half that the peer needs to connect its own.
func (l *Lane) Half() handshake.Lane {
	h := handshake.Lane{Index: l.Index, Kind: uint8(l.Port.Kind()), Port: l.Port.Index(), PeerPort: l.Peer.Index}
	if l.Conn.Sending {
		h.Through = l.Route.Through()
	}
	l.Carrier.Offer(&h)
	return h
}

// Break handles an error of the lane's carrier. A lane in service goes out of service and is reported to the
// connection. An error that is not the lane's fault (invalid use, protocol, internal) ends the connection.
func (l *Lane) Break(err error) {
	switch {
	case errors.Is(err, fault.ErrUsage), errors.Is(err, fault.ErrProtocol), errors.Is(err, fault.ErrInternal):
		l.Conn.Owner.Fail(err)
	case l.state == Up:
		l.Fail(err)
		l.Conn.Owner.ReportFailure(l, err)
	}
}

// MarkFailed records the first failure report of the lane. It may be called from any goroutine.
func (l *Lane) MarkFailed(err error) { l.failure.CompareAndSwap(nil, &err) }

// Failure returns the first failure report of the lane, or nil. It may be called from any goroutine.
func (l *Lane) Failure() error {
	if e := l.failure.Load(); e != nil {
		return *e
	}
	return nil
}
