package bundle

import (
	"fmt"
	"net/netip"

	"ncclmesh/transport/lane"
)

// Finding is what has been found of a lane that did not come into service.
type Finding struct {
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

func (f Finding) String() string { return fmt.Sprintf("%v -> %v: %v", f.From, f.To, f.Why) }

// Tried are the findings of all lanes that did not come into service.
func (b *Bundle) Tried() (tried []Finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lanes {
		if !l.InService() {
			tried = append(tried, b.finding(l))
		}
	}
	return tried
}

func (b *Bundle) finding(l *lane.Lane) Finding {
	return Finding{
		From: End{b.Session.LocalName(), l.Port.Now().String(), l.From.Addr.Unmap()},
		To:   End{b.Session.Name(), lane.PeerPort(l.Peer).Short(), l.Remote.Addr.Unmap()},
		Why:  l.Why(),
	}
}
