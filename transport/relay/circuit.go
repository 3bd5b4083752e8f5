package relay

import (
	"context"
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Maker makes the forwarding parts of one kind of circuits. Its methods may be called from any goroutine.
type Maker interface {
	// Begin makes this relay's endpoints of both hops, as the request ask says. It may block while memory and queue
	// pairs are made, but does not wait for a peer. An error tells users why this node could not do it.
	Begin(ask *handshake.CircuitOpen, j HopPair) (Relayed, error)
}

// HopPair describes the two hops that a relay connects.
type HopPair struct {
	In, Out Leg
	Last    bool // Out leads to the receiver, not to another relay
	// Ended is called once, when the circuit ends by itself: with nil after all data was forwarded, otherwise with the
	// error. It is called from any goroutine, without locks that Drop takes, and only after Connect was called. It may
	// be omitted after Drop.
	Ended func(error)
	// Moved counts forwarded bytes.
	Moved func(forth, back uint64)
}

// Leg is one hop of a circuit, seen from the relay.
type Leg struct {
	Port lane.Port        // of this node
	Told handshake.Port   // the peer's description of its port
	From topology.Address // address of Port
	Peer uint8            // Port.Index of the peer's port
	To   netip.Addr       // address of the peer's port, 128 bits and without a zone
	Name string           // name of the peer's node for log lines; "" if it is not known
	Hop  handshake.LaneName
	Key  handshake.Key // with Hop, authenticates the socket; not set for the last hop of sockets
}

// Relayed is the part of a circuit that forwards data between its two hops at this relay. The order of calls is Next,
// Connect, Prev, Drop. Drop may be called at any time, also while Connect runs.
type Relayed interface {
	// Next returns the parameters of Out that the next process needs.
	Next() Offer
	// Connect connects Out with the reply of the next process, and In with the endpoint of the previous one. It may
	// block until the context ends.
	Connect(ctx context.Context, next *handshake.CircuitOpened) error
	// Prev returns the parameters of In that the previous process needs. That process may send from then on.
	Prev() Offer
	// Drop ends the forwarding. It never blocks and may be called again. Resources are released in the background.
	Drop(why error)
}

// Offer is the parameters of a hop that a relay sends to the process at its other end. The caller fills in Port and
// PeerPort of Half, and its Kind.
type Offer struct {
	Half  handshake.Lane
	Write handshake.Ring // where that process writes: CircuitOpen.Back, CircuitDeliver.Write, CircuitOpened.Write
	Read  handshake.Ring // where the receiver reads: CircuitDeliver.Read
	Room  uint32         // bytes of the smallest ring on the path so far: CircuitOpen.Room, CircuitOpened.Room
}
