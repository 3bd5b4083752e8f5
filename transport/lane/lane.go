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

// Kind is what carries a lane. Its values are those of the set-up messages.
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

// Plan is a lane that a connection will try.
type Spec struct {
	Port   Port
	From   topology.Address // address of the port
	Peer   handshake.Port
	To     netip.Addr // address of the peer's port
	Weight float64    // its share of the traffic, in Mb/s; 0 is what its ports can do
	Route  *Route     // through which other nodes it goes; nil: none
	Tier   int        // how good the way is: of the first of package path's that there was, 0 is the best
}

// Shared is what its lanes know of a connection. It does not change once they are
// connected.
type Shared struct {
	ID      uint32
	Sending bool
	Probe   bool // the connection carries proofs only
	Session *control.Session
	Sink    Sink
	Owner   Owner
	Ring    *ControlRing // where the peer's device writes

	PeerBase uint64             // of the peer's wire
	PeerKeys [MaxDomains]uint32 // to it, by place of the peer's domain
}

// String names the connection by both nodes, sender first, and by the processes where both are of one node.
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
	*stats.Lane // what it carries: bytes and parts, sent or arrived; the page's while it is in service
	Conn        *Shared
	Index       uint8  // among the lanes of the connection
	Epoch       uint32 // of the set-up that made it: 0 is the connection's own
	Port        Port
	From        topology.Address // address of the port
	Peer        handshake.Port
	Route       *Route         // through which other nodes it goes; nil: none
	Tier        int            // how good its way is, as that side knows; the best is 0
	Remote      handshake.Lane // the peer's half; of one that is not known yet, the address

	Weight  float64 // its speed beside the others', as far as package path knows it; see Rate
	Backlog int64   // bytes handed to it and not delivered, as package message counts them

	Delivered uint64 // parts that the peer has
	Latest    uint64 // number of the message that was posted last of theirs

	Carried   float64   // bytes for its weight that the others had carried when it joined
	DownSince time.Time // when it went out of service

	Reached atomic.Bool // the peer's kernel has answered, and its process may be slow to

	speed   speed
	failure atomic.Pointer[error] // evidence against the lane
	state   State
	why     error
}

// New makes a connection's lane, without a carrier.
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

// String names the path: the sender's port, the receiver's.
func (l *Lane) String() string {
	from, to := l.Port.Now().Short(), PeerPort(l.Peer).Short()
	if !l.Conn.Sending {
		from, to = to, from
	}
	return fmt.Sprintf("lane %d %s -> %s", l.Index, from, to)
}

// Path is the lane with the nodes that it goes through, as far as this side knows them.
func (l *Lane) Path() string { return fmt.Sprintf("%v%v", l, l.Route) }

// Name names this half of the lane: no other half that a process has at the time has the same name.
func (l *Lane) Name() Name {
	n := Name{Conn: l.Conn.ID, Sending: l.Conn.Sending, Epoch: l.Epoch, Lane: l.Index}
	if l.Conn.Session != nil {
		n.Session = l.Conn.Session.ID()
	}
	return n
}

// Name is that of a half of a lane.
type Name struct {
	Session handshake.SessionID
	Conn    uint32
	Sending bool
	Epoch   uint32
	Lane    uint8
}

// PeerPort is as much of a peer's port as names it.
func PeerPort(p handshake.Port) *topology.Port {
	return &topology.Port{Device: p.Device, Num: p.Num, Netdev: p.Netdev}
}

// Half is what the peer must know to connect its half.
func (l *Lane) Half() handshake.Lane {
	h := handshake.Lane{Index: l.Index, Kind: uint8(l.Port.Kind()), Port: l.Port.Index(), PeerPort: l.Peer.Index}
	if l.Conn.Sending {
		h.Through = l.Route.Through()
	}
	l.Carrier.Offer(&h)
	return h
}

// Break hands on an error that the lane's carrier met. A lane that is broken goes out
// of service and its connection lives on; what is no fault of the lane ends that.
func (l *Lane) Break(err error) {
	switch {
	case errors.Is(err, fault.ErrUsage), errors.Is(err, fault.ErrProtocol), errors.Is(err, fault.ErrInternal):
		l.Conn.Owner.Fail(err)
	case l.state == Up:
		l.Fail(err)
		l.Conn.Owner.ReportFailure(l, err)
	}
}

// MarkFailed notes evidence against the lane. It may be called from any goroutine.
func (l *Lane) MarkFailed(err error) { l.failure.CompareAndSwap(nil, &err) }

// Failure is the first evidence against the lane, or nil. It may be called from any
// goroutine.
func (l *Lane) Failure() error {
	if e := l.failure.Load(); e != nil {
		return *e
	}
	return nil
}
