package conn

import (
	"errors"
	"fmt"
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// LaneFailure says why a lane did not come into service.
type LaneFailure struct {
	From, To End
	Local    lane.Port      // the port of this node
	Remote   handshake.Port // the description of the peer's port
	Why      error          // a *lane.NodeFault if a node lacked a resource, so that the path itself may work
}

// End is one end of a lane.
type End struct {
	Node string
	Port string
	Addr netip.Addr
}

func (e End) String() string { return fmt.Sprintf("%s %v on %s", e.Port, e.Addr, e.Node) }

func (f LaneFailure) String() string { return fmt.Sprintf("%v -> %v: %v", f.From, f.To, f.Why) }

// Reason returns why the lane failed, for readers who know which lane it is.
func (f LaneFailure) Reason() string { return reason(f.Why) }

// reason returns why a lane failed: of a failed verb or work request without the names of the connection, the lane and the queue pair. So the
// length of a message suffices to tell the peer.
func reason(why error) string {
	var failed interface{ Reason() string }
	if errors.As(why, &failed) {
		return failed.Reason()
	}
	return why.Error()
}

// Failures returns a LaneFailure for each lane that is not in service.
func (c *Conn) Failures() (tried []LaneFailure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		if !l.InService() {
			tried = append(tried, c.failureOf(l))
		}
	}
	return tried
}

// failureOf returns the failure of a lane that is not in service.
func (c *Conn) failureOf(l *lane.Lane) LaneFailure {
	return LaneFailure{
		From: End{c.Session.LocalName(), l.Port.Now().String(), l.From.Addr.Unmap()},
		To:   End{c.Session.Name(), lane.PeerPort(l.Peer).Short(), l.Remote.Addr.Unmap()},

		Local: l.Port, Remote: l.Peer,
		Why: l.Why(),
	}
}
