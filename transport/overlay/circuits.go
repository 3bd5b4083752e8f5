package overlay

import (
	"context"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

var _ lane.Circuits = (*Overlay)(nil)

// OpenCircuit requests a circuit; see [lane.Circuits]. The error is ErrOff if relaying is off.
func (o *Overlay) OpenCircuit(ctx context.Context, port uint8, m *handshake.CircuitOpen, dropped, stalled func(error)) (*lane.OpenedCircuit, error) {
	if p := o.running(); p != nil {
		return p.relay.OpenCircuit(ctx, port, m, dropped, stalled)
	}
	return nil, ErrOff
}

// Expect registers a circuit that will end at this process; see [lane.Circuits]. The error is ErrOff if relaying is off.
func (o *Overlay) Expect(token uint64, deliver lane.Deliver, dropped func(error)) error {
	if p := o.running(); p != nil {
		return p.relay.Expect(token, deliver, dropped)
	}
	return ErrOff
}

// Cancel removes an expectation; see [lane.Circuits].
func (o *Overlay) Cancel(token uint64) {
	if p := o.running(); p != nil {
		p.relay.Cancel(token)
	}
}

// CircuitPort returns the port for circuits that belongs to a port for queue pairs. It returns any other port unchanged,
// and every port if relaying is off.
func (o *Overlay) CircuitPort(at lane.Port) lane.Port {
	if p := o.running(); p != nil && p.circuits[at] != nil {
		return p.circuits[at]
	}
	return at
}
