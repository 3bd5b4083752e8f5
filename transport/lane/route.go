package lane

import (
	"context"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/topology"
)

// Route is the path of a lane through relays, from the sender's side, which requests the circuit. It does not
// change.
type Route struct {
	Via   []handshake.Hop // the relays, in order, as the sender knows them
	Names []string        // names of the relays' nodes
}

// RouteOf returns the route that the receiver knows, which is the names in the sender's handshake message; nil
// for a direct lane.
func RouteOf(half handshake.Lane) *Route {
	if half.Through == "" {
		return nil
	}
	return &Route{Names: []string{half.Through}}
}

// String returns " through " and the names of the relays, or "" for a nil route.
func (r *Route) String() string {
	if r == nil {
		return ""
	}
	return " through " + r.Through()
}

// Through returns the names of the relays, joined with " and ", or "" for a nil route.
func (r *Route) Through() string {
	if r == nil {
		return ""
	}
	return strings.Join(r.Names, " and ")
}

// Circuits makes circuits through relays; package relay implements it. Its methods may be called from any
// goroutine.
type Circuits interface {
	// OpenCircuit requests a circuit from the first relay of m.Route, a neighbour at a port of this node, and waits
	// until the circuit is open or ctx ends. It sets m.Circuit, and the ports and the address of m.Half if
	// m.Half.Addr is the zero value.
	//
	// After OpenCircuit has returned a circuit, dropped is called at most once, when the other side closes it: from
	// any goroutine, and never from inside Drop. silent is called each time a relay on the path gives no sign
	// of life; the circuit may recover.
	OpenCircuit(ctx context.Context, port uint8, m *handshake.CircuitOpen, dropped, silent func(error)) (*OpenedCircuit, error)
	// Expect registers deliver for the circuit that will come with a token. deliver is called once, on a
	// goroutine on which it may block until its context ends; it connects this end and returns the answer to
	// the last relay, or the reason that it refuses the circuit. Circuits fills in the circuit's numbers. drop
	// closes the circuit; dropped is called when the other side closes it.
	Expect(token uint64, deliver Deliver, dropped func(error)) error
	// Cancel removes a registration that no circuit has used. deliver may already be running or about to run.
	Cancel(token uint64)
}

// Deliver accepts a circuit at its last process.
type Deliver func(ctx context.Context, m *handshake.CircuitDeliver, drop func(why string)) (*handshake.CircuitOpened, error)

// OpenedCircuit is an open circuit, at the process that requested it.
type OpenedCircuit struct {
	*handshake.CircuitOpened                  // the first relay's answer
	From                     topology.Address // this side's address on the first hop
	Hop                      handshake.LaneName
	Key                      handshake.Key    // with Hop, authenticates the preface of a socket's first hop
	Drop                     func(why string) // closes the circuit; may be called again, never blocks
}
