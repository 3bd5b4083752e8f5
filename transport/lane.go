package transport

import (
	"context"
	"fmt"
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
)

// lane is what a connection uses of one path between a local and a remote port.
type lane struct {
	carrier
	conn   *conn
	index  uint8
	port   *port
	peer   handshake.Port // the peer's port
	remote handshake.Lane // the peer's half; of one that is not known yet, the GID

	reached atomic.Bool // the peer's kernel has answered, and its process may be slow to
	ready   bool        // connected to the peer's half
	up      bool        // in service
	reason  string      // why it is not
	own     error       // if that is something this node ran out of
	lack    string      // if that is no evidence against the path: what a node lacked for it, and which

	weight  float64 // speed, relative to the other lanes
	backlog int64   // bytes handed to it and not delivered

	bytes, messages uint64
}

// carrier moves a lane's bytes: a queue pair, or a socket. Its methods are
// called with the connection's mutex held, except that connect is not, because
// it may block.
type carrier interface {
	// offer completes what the peer is told of this half.
	offer(*handshake.Lane)
	// connect makes this half ready to send, given the peer's half and the
	// place of its port in the peer's device set. It gives up, if it can, when
	// the context ends.
	connect(ctx context.Context, remote handshake.Lane, peerDev int) error
	// postProof sends the peer what proves that packets pass.
	postProof() error
	// proved reports whether this side's proof has been acknowledged and whether
	// the peer's has come; an error says that one of them never will.
	proved() (sent, came bool, err error)
	// terms describes the half for people.
	terms() string

	// room reports whether a part of that many bytes can be posted now.
	room(bytes int) (bool, error)
	// sendPart sends b bytes at local, which lie in r, to offset off of the
	// granted buffer.
	sendPart(req *Request, g *grant, local, off uint64, b int, m imm, r *Region) error
	// grantable reports whether a grant can be sent now.
	grantable() bool
	// prepare makes the lane ready to receive what the next grant asks for.
	prepare() error
	// sendGrant puts the entries of seq into the sender's ring.
	sendGrant(seq uint64, entries []grant) error

	// stop ends all transfers, begun or posted; drained reports whether
	// nothing of them touches memory any more.
	stop() error
	drained() bool
	// close gives everything back.
	close() error
}

// String names the path: the sender's port, the receiver's.
func (l *lane) String() string {
	from, to := l.port.short(), shortName(l.peer)
	if !l.conn.sending {
		from, to = to, from
	}
	return fmt.Sprintf("lane %d %s -> %s", l.index, from, to)
}

// shortName names a peer's port as (*port).short does a local one.
func shortName(p handshake.Port) string {
	if p.Device == "" {
		return p.Netdev
	}
	return fmt.Sprintf("%s:%d", p.Device, p.Num)
}

// unusable notes why the lane cannot be put into service.
func (l *lane) unusable(err error) {
	if l.reason = err.Error(); limit.IsOwn(err) {
		l.own = err
		l.lacking(err)
	}
}

// lacking notes what this node lacked for the lane.
func (l *lane) lacking(err error) { l.lack = fmt.Sprintf("%s: %v", l.conn.s.LocalName(), err) }

// noneWorks is the error of a connection none of whose lanes can be put into
// service.
func (c *conn) noneWorks() error {
	for _, l := range c.lanes {
		if l.own != nil {
			return fmt.Errorf("%w: %v: %v: %w", errOwn, c, l, l.own)
		}
	}
	return errNoLane
}

// newLane makes the connection's next lane; its carrier is the caller's to set.
func (c *conn) newLane(p plannedLane) *lane {
	l := &lane{conn: c, index: uint8(len(c.lanes)), port: p.port, peer: p.peer, remote: handshake.Lane{GID: p.to}, weight: p.weight}
	if l.weight <= 0 {
		l.weight = float64(max(1, min(p.port.Mbps(), int(p.peer.SpeedMbps))))
	}
	return l
}

// halfOffer is what the peer must know to connect its half.
func (l *lane) halfOffer() handshake.Lane {
	h := handshake.Lane{Index: l.index, Port: l.port.index, PeerPort: l.peer.Index}
	l.offer(&h)
	return h
}
