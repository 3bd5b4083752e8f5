package conn

import (
	"fmt"
	"net/netip"

	"ncclmesh/transport/lane"
)

// Finding is what has been found of a lane that did not come into service.
type LaneFailure struct {
	From, To End
	Why      error // a *lane.NodeFault where it is no evidence against the path
}

// End is one end of a lane.
type End struct {
	Node string
	Port string
	Addr netip.Addr
}

func (e End) String() string { return fmt.Sprintf("%s %v on %s", e.Port, e.Addr, e.Node) }

func (f LaneFailure) String() string { return fmt.Sprintf("%v -> %v: %v", f.From, f.To, f.Why) }

// Tried are the findings of all lanes that did not come into service.
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

func (c *Conn) failureOf(l *lane.Lane) LaneFailure {
	return LaneFailure{
		From: End{c.Session.LocalName(), l.Port.Now().String(), l.From.Addr.Unmap()},
		To:   End{c.Session.Name(), lane.PeerPort(l.Peer).Short(), l.Remote.Addr.Unmap()},
		Why:  l.Why(),
	}
}
