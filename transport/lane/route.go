package lane

import (
	"context"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/topology"
)

// Route is a lane's way through other nodes, seen from the sender, who asks for it. It
// does not change.
type Route struct {
	Via   []handshake.Hop // the relays, in order, as the sender knows them
	Names []string        // of their nodes, for people
}

// RouteOf is a lane's way as the receiver knows it: by the names that the sender gives.
func RouteOf(half handshake.Lane) *Route {
	if half.Through == "" {
		return nil
	}
	return &Route{Names: []string{half.Through}}
}

// String says through whom it goes; nothing of no route.
func (r *Route) String() string {
	if r == nil {
		return ""
	}
	return " through " + r.Through()
}

// Through names the nodes; nothing of no route.
func (r *Route) Through() string {
	if r == nil {
		return ""
	}
	return strings.Join(r.Names, " and ")
}

// Circuits is who has other processes carry lanes: package relay. Its methods may be
// called from any goroutine.
type Circuits interface {
	// Carry asks the first relay of m.Route, a neighbour at a port of this node, for a
	// circuit, and waits until that stands or the context ends. It chooses m.Circuit,
	// and m.Half's ports and address where m.Half.Addr is the zero value. Once it has
	// returned a circuit, dropped is called at most once, from any goroutine and never
	// from inside Drop, when it ends from the other side; silent is when a relay on the
	// way gives no sign of life, and again as long as that is so: the circuit may go on.
	Carry(ctx context.Context, port uint8, m *handshake.Carry, dropped, silent func(error)) (*OpenedCircuit, error)
	// Expect has arrive take the circuit that comes with a token, once, on a goroutine
	// on which it may block until the context ends: it connects this end and returns
	// what the last relay has to know, or why there is no circuit. The numbers of
	// the circuit are filled in. drop ends the circuit; dropped is as Carry's.
	Expect(token uint64, arrive Arrive, dropped func(error)) error
	// Cancel withdraws an expectation that has not been met; arrive may be running,
	// or about to.
	Cancel(token uint64)
}

// Arrive takes a circuit at its last process.
type Arrive func(ctx context.Context, m *handshake.Arrive, drop func(why string)) (*handshake.Carried, error)

// Asked is a circuit that stands, at the process that asked for it.
type OpenedCircuit struct {
	*handshake.Carried                  // the first relay's answer
	From               topology.Address // this side's address of the first hop
	Hop                handshake.LaneName
	Key                handshake.Key    // with Hop, what the preface of a socket's first hop is made of
	Drop               func(why string) // ends it; may be called again, never blocks
}
