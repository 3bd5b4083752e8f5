package lane

import (
	"context"

	"ncclmesh/handshake"
	"ncclmesh/transport/board"
	"ncclmesh/transport/topology"
)

// Port is a port of this node. Its methods may be called from any goroutine.
type Port interface {
	Kind() Kind
	Traits() Traits
	// Index is the port's number in what peers are told.
	Index() uint8
	// Now is the port as it was last seen; not to be changed.
	Now() *topology.Port
	// Carrier takes note, before the port is seen again, that its network interface has a
	// carrier or has none; Dark reports whether by that the port has lost its link. They may
	// be called from any goroutine.
	Carrier(has bool)
	NoCarrier() bool
	// See takes note of the port's present state and reports whether it has changed.
	See(topology.Port) (changed bool, err error)
	// Describe completes what peers are told of the port.
	Describe(*handshake.Port)
	// Open makes a domain of a connection, at a place among them, for lanes to each of
	// those ports of the peer.
	Open(c *Shared, place int, to []handshake.Port) (Domain, error)
	// Close gives everything back. All domains have been closed.
	Close() error
}

// Traits are what messages heed of a kind of lanes.
type Traits struct {
	// Passive lanes move nothing between calls: somebody must look for grants, and
	// acknowledge what has arrived.
	Polled bool
	// Blind lanes carry grants that say nothing of where a buffer lies, which a device
	// must know.
	NoRKeys bool
	// Eager lanes carry short messages before their grants, where all of a connection's do:
	// see Eager.
	Eager bool
	// Cut is how many bytes a part should have at least: a message of fewer, times
	// its lanes, stays whole. The lanes take turns with those: how much such a lane
	// has not delivered says little.
	MinPart int
}

// Domain is what the lanes of a connection over one port share.
type Domain interface {
	Port() Port
	// HasRoom reports whether another lane can be made.
	HasRoom() bool
	// NewLane makes the carrier of l.
	NewLane(l *Lane) (Carrier, error)
	// Key is what the peer needs to write into the connection's wire.
	Key() uint32
	// Poll takes the news of the lanes. receiving says that parts may arrive.
	Poll(receiving bool)
	// Source is the completion queue from which all that Poll takes comes; nil where there is more.
	Source() *board.Source
	// Flush tells the sender what has arrived, where that does not go by itself;
	// idle says that no receive is outstanding: nobody may call again.
	Flush(idle bool)
	// Register makes a range of memory known; a nil Registration says that there
	// is no need to. It may be called without the connection's mutex.
	Register(addr, length uintptr) (Registration, error)
	// RegisterDmaBuf does so for the memory of a DMA-BUF that the process sees at
	// addr. It may be called without the connection's mutex.
	RegisterDmaBuf(addr, length uintptr, offset uint64, fd int) (Registration, error)
	// Close gives everything back. All lanes have been closed.
	Close() error
}

// Carrier moves a lane's bytes.
type Carrier interface {
	// Offer completes what the peer is told of this half.
	Offer(*handshake.Lane)
	// Connect makes this half ready to send, given the peer's half and the place
	// of its port among the peer's domains. It may block, until the context ends:
	// the mutex is not held.
	Connect(ctx context.Context, remote handshake.Lane, place int) error
	// Lacked is what this node lacked for a lane that was not connected in time, or
	// nil.
	LocalError() error
	// PostProof sends the peer what proves that packets pass.
	PostProbe() error
	// Proved reports whether this side's proof has been acknowledged and whether
	// the peer's has come; an error says that one of them never will.
	Probed() (sent, came bool, err error)
	// Number is what the device or the kernel calls the half: the number of a queue pair,
	// or of a descriptor; 0 while there is none.
	Number() int
	// Terms describes the half for people, Remark what of it they should know; ""
	// when there is nothing.
	Terms() string
	Remark() string

	// Reaches reports whether the lane can carry a part to the buffer of a grant: a device
	// needs a key that grants lack which are older than the connection's use of it.
	Reaches(g *Grant) bool
	// Room reports whether a part of that many bytes can be sent now.
	Room(bytes int) (bool, error)
	// Send sends a part.
	Send(p *Part) error
	// Grantable reports whether a grant can be sent now.
	Grantable() bool
	// Prepare makes the lane ready to receive what the next grant asks for.
	Prepare() error
	// SendGrant puts the entries of seq into the sender's ring. Of a grant that was sent
	// before again is true: Sink.Regranted says when it has come.
	SendGrant(seq uint64, entries []Grant, again bool) error
	// Fetch looks for grants that do not come by themselves, and sends on what has not gone
	// out: the receiver may need that before it grants more.
	Fetch()
	// Owes reports whether something has to go out that does not unless the connection's
	// owner calls again: word of parts that have arrived, or an eager message, whose sender
	// does not wait for such word.
	HasPendingOutput() bool
	// Delivering reports whether a peer that has closed the connection may still
	// acknowledge what was sent; gone says that its process has ended.
	Delivering(gone bool) bool
	// Stalled reports whether it is the way's fault that nothing which was sent has been
	// delivered for long, and not the peer's process, as far as this side can tell.
	Stalled() bool
	// Unsent is how many bytes wait for the peer's kernel.
	Unsent() int

	// Stop ends all transfers, begun or posted; Drained reports whether nothing of
	// them touches memory any more, and what had arrived has been told of.
	Stop() error
	Drained() bool
	// Close gives everything back. It may be called again.
	Close() error
}

// Part is a part of a message to send.
type Part struct {
	Request int    // whose part it is; NoRequest: nobody's
	Eager   *Eager // of a part that goes before its grant, and is a whole message; else nil
	Grant   *Grant
	Local   uintptr // where its bytes lie
	Offset  uint64  // where they go in the granted buffer
	Size    int
	Imm     Imm
	Region  *Region // that the bytes lie in
}

// NoRequest is the request of a part that nobody waits for.
const NoRequest = -1

// Sink is the messages of a connection, to its lanes.
type Sink interface {
	// Delivered says that the peer has a part of a request.
	Delivered(l *Lane, request, part int)
	// Place asks where a part goes that begins to arrive on a lane whose carrier
	// places it itself, and in which region; nil where nothing goes. It reports false
	// when the peer must not send it: the connection has ended.
	Place(l *Lane, v uint32, offset uint64, size uint32) (addr uintptr, r *Region, ok bool)
	// Dropped says that the part which began to arrive last will not end on the lane.
	Dropped(l *Lane, v uint32)
	// Arrived says that a part has arrived, whole.
	Arrived(l *Lane, v uint32, size int64)
	// Eager says that an eager message has come, whole, or that the sender asks for grants.
	// b is used again.
	Eager(l *Lane, e Eager, b []byte)
	// Taken says that an eager message has gone to its buffer. An error says that it cannot
	// have.
	EagerMatched(t EagerMatch) error
	// Granted says that a grant has come that no device writes into the ring. An
	// error says that it must not.
	Granted(seq uint64, entries []Grant) error
	// Regranted says that a grant that was sent again is in the sender's ring.
	Regranted(l *Lane, slot uint8)
}

// Owner is what holds the lanes of a connection. Its methods may be called from any
// goroutine, with or without the connection's mutex.
type Owner interface {
	// Fail ends the connection.
	Fail(err error)
	// Evidence says that a lane is broken: the connection goes on over the others.
	ReportFailure(l *Lane, err error)
	// Doubt says that a lane may carry nothing now, as a relay is silent: it is left where
	// another way is in service and it delivers nothing until it is doubted again.
	Suspect(l *Lane, err error)
	// PortDown says that a port has lost its carrier: its lanes are left where there are
	// others.
	PortDown(p Port)
}

// Flushed marks the error of what was outstanding on a lane that had failed before, for
// a reason that is not known here.
type Flushed struct{ Cause error }

func (f Flushed) Error() string { return f.Cause.Error() }
func (f Flushed) Unwrap() error { return f.Cause }
