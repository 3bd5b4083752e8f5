package overlay

import (
	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

// Message handles a session's message about the map or about circuits. It returns false for any other message. It does
// not block.
func (o *Overlay) Message(s *control.Session, m handshake.Message) bool {
	p := o.running()
	switch m := m.(type) {
	case *handshake.MapQuery:
		if p != nil {
			p.routing.HandleQuery(s, m)
		}
	case *handshake.Map:
		if p != nil {
			p.routing.HandleReply(s, m)
		}
	case *handshake.CircuitOpen, *handshake.CircuitDeliver, *handshake.CircuitOpened, *handshake.CircuitClose, *handshake.CircuitStalled:
		if p != nil {
			p.relay.Message(s, m)
		}
	default:
		return false
	}
	return true
}

// SessionEnded ends every circuit over a session that has ended, and every query that waits for a reply from it.
func (o *Overlay) SessionEnded(s *control.Session) {
	p := o.running()
	if p == nil {
		return
	}
	p.relay.SessionEnded(s)
	p.routing.SessionEnded(s)
	if p.discovery.Forget(s.Peer().Process) { // a successor of the process has to be discovered
		p.routing.Changed()
	}
}

// Uses reports whether a circuit uses a session.
func (o *Overlay) Uses(s *control.Session) bool {
	p := o.running()
	return p != nil && p.relay.Uses(s)
}

// PortDown ends every relayed circuit that uses a port.
func (o *Overlay) PortDown(port uint8, why error) {
	if p := o.running(); p != nil {
		p.relay.PortDown(port, why)
	}
}

// PortsChanged forgets the neighbours and the map, because a port of this node has changed.
func (o *Overlay) PortsChanged() {
	if p := o.running(); p != nil {
		p.discovery.Changed()
		p.routing.Changed()
	}
}
