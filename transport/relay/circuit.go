package relay

import (
	"context"
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Maker makes circuits of one kind, as the relay in the middle has them. Its methods may
// be called from any goroutine.
type Maker interface {
	// Begin makes this relay's halves of both hops, for what ask wants. It may block for
	// as long as memory and queue pairs take to make, not for a peer. An error is for
	// people: this node could not do it, and why.
	Begin(ask *handshake.Carry, j Joining) (Joint, error)
}

// Joining is where a relay joins two hops.
type Joining struct {
	In, Out Leg
	Last    bool // Out leads to the receiver, not to another relay
	// Ended is called, once, from any goroutine and without locks that Drop takes, when
	// the joint is over by itself: nil when all was carried, else why not. It must not be
	// called before Connect has been, nor need it be called after Drop.
	Ended func(error)
	// Moved counts bytes that were carried.
	Moved func(forth, back uint64)
}

// Leg is one hop of a circuit, seen from the relay.
type Leg struct {
	Port lane.Port        // of this node
	Told handshake.Port   // what the node there has told of its port
	From topology.Address // its address
	Peer uint8            // Port.Index of the process at the other end
	To   netip.Addr       // the address there, 128 bits and without a zone
	Name string           // of the node there, for people; "" where it is not known
	Hop  handshake.LaneName
	Key  handshake.Key // with Hop, what the preface of a socket is made of; not of a socket's last hop
}

// Joint is this relay's part of a circuit. The order of calls is Next, Connect, Prev, Drop;
// Drop may come at any time, also while Connect runs.
type Joint interface {
	// Next is what the next process has to know, of Out.
	Next() Offer
	// Connect joins Out to what the next process answered, and In to the asker's half. It may
	// block until the context ends.
	Connect(ctx context.Context, next *handshake.Carried) error
	// Prev is what the asker has to know, of In. From then on it may send.
	Prev() Offer
	// Drop ends it; never blocks; may be called again. What it has goes by itself.
	Drop(why error)
}

// Offer is what a relay tells a process beside it of the hop between the two. Of Half, Port
// and PeerPort are filled in for it, of the Lane's other names Kind.
type Offer struct {
	Half  handshake.Lane
	Write handshake.Ring // where that process writes: Carry.Back, Arrive.Write, Carried.Write
	Read  handshake.Ring // where the receiver reads: Arrive.Read
	Room  uint32         // bytes of the smallest ring on the way so far: Carry.Room, Carried.Room
}
