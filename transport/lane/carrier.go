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
	// Index is the number by which handshake messages name the port.
	Index() uint8
	// Now returns the port as it was last seen. The caller must not change it.
	Now() *topology.Port
	// Carrier records that the port's network interface has gained or lost its carrier, as the kernel reports
	// it before the port is seen again. NoCarrier reports whether the port has no link by the latest such
	// report.
	Carrier(has bool)
	NoCarrier() bool
	// See records the port's present state and reports whether it differs from the previous one.
	See(topology.Port) (changed bool, err error)
	// Describe adds to a port's description for peers the fields that only this kind of port knows.
	Describe(*handshake.Port)
	// Open creates the domain of a connection, at index place among the connection's domains, with room for a
	// lane to each of the peer's ports in to.
	Open(c *Shared, place int, to []handshake.Port) (Domain, error)
	// Close releases the port's resources. All domains must have been closed.
	Close() error
}

// Traits are the properties of a kind of lane that the message layer takes into account.
type Traits struct {
	// Polled lanes move nothing between calls: the connection has to poll them for grants, and has to
	// acknowledge parts that have arrived.
	Polled bool
	// NoRKeys lanes carry grants without the address and the remote keys of a buffer, so a device cannot write
	// by them.
	NoRKeys bool
	// Eager lanes can carry short messages before their grants, if all lanes of the connection can: see Eager.
	Eager bool
	// HostOnly lanes move the bytes by the processor, which cannot reach GPU memory.
	HostOnly bool
	// MinPart is the least number of bytes that a part should have. A message shorter than MinPart times the
	// number of its lanes is not split; such lanes take turns in carrying whole messages, because the number of
	// undelivered bytes says little about their load.
	MinPart int
}

// Domain holds the resources that a connection's lanes over one port share.
type Domain interface {
	Port() Port
	// HasRoom reports whether the domain has room for another lane.
	HasRoom() bool
	// NewLane creates the carrier of l.
	NewLane(l *Lane) (Carrier, error)
	// Key returns the remote key with which the peer writes into the connection's control ring.
	Key() uint32
	// Poll handles the events of the domain's lanes. receiving says that parts may arrive.
	Poll(receiving bool)
	// Source returns the completion queue that delivers every event that Poll handles, or nil if there are
	// other events too.
	Source() *board.Source
	// Flush acknowledges parts that have arrived, on lanes whose device does not acknowledge by itself. idle
	// says that no receive is outstanding, so that NCCL may not call again.
	Flush(idle bool)
	// Register registers a range of memory, of a kind that the port takes. It returns a nil Registration if the
	// domain needs none. It may be called without the connection's mutex. At a receiver, a domain that has
	// registered GPU memory can make what arrives there visible to the GPU: see StartFlush.
	Register(Memory) (Registration, error)
	// StartFlush begins to make all bytes that have arrived over the domain's lanes visible to the GPU whose
	// memory r is, by a READ of the byte at addr, which lies in r. It returns false if there is no room now.
	// Flushed polls, and reports whether the flush that was begun last has ended. An error of either says that
	// the device cannot do it at present. No other flush of the domain may be in progress.
	StartFlush(r *Region, addr uintptr) (begun bool, err error)
	Flushed() (ended bool, err error)
	// Close releases the domain's resources. All lanes must have been closed.
	Close() error
}

// Carrier moves the bytes of a lane. Its methods need the connection's mutex, except where they say otherwise.
type Carrier interface {
	// Offer fills in this half's addresses and tokens for the handshake message to the peer.
	Offer(*handshake.Lane)
	// Connect makes this half ready to send, given the peer's half and the index of the peer's port among the
	// peer's domains. It is called without the mutex and may block until ctx ends.
	Connect(ctx context.Context, remote handshake.Lane, place int) error
	// LocalError returns the local resource error that kept the lane from being connected in time, or nil.
	LocalError() error
	// PostProbe sends the peer a packet that validates the path in this direction.
	PostProbe() error
	// Probed reports whether this side's probe packet has been acknowledged (sent) and whether the peer's has
	// arrived (came). err says that one of them can no longer succeed.
	Probed() (sent, came bool, err error)
	// Number returns the number of the queue pair or of the file descriptor; 0 if there is none yet.
	Number() int
	// Terms describes the half for logs. Remark returns a warning for the user, or "".
	Terms() string
	Remark() string

	// Reaches reports whether the lane can carry a part into the buffer of g. A device needs a remote key,
	// which a grant does not have if it was sent before the receiver registered the buffer for this lane's
	// port.
	Reaches(g *Grant) bool
	// Room reports whether a part of that many bytes can be sent now.
	Room(bytes int) (bool, error)
	// Send queues a part for transmission. Room must have returned true.
	Send(p *Part) error
	// Grantable reports whether a grant can be sent now.
	Grantable() bool
	// Prepare posts the receives that the next grant relies on.
	Prepare() error
	// SendGrant puts the entries of receive seq into the sender's grant ring. again says that the grant was
	// sent before on another lane; the carrier then calls Sink.Regranted once the grant has arrived.
	SendGrant(seq uint64, entries []Grant, again bool) error
	// Fetch reads grants that no device writes into the ring, and sends parts that are still queued, because
	// the receiver may need those before it grants more.
	Fetch()
	// HasPendingOutput reports whether the lane has output that only a further call can send: an
	// acknowledgement, or an eager message, for whose acknowledgement the sender does not wait.
	HasPendingOutput() bool
	// Delivering reports whether a peer that has closed the connection may still acknowledge parts. gone says
	// that the peer's process has ended.
	Delivering(gone bool) bool
	// Stalled reports whether the network, and not the peer's process, appears to be the reason that nothing
	// has been delivered for long.
	Stalled() bool
	// Unsent returns the number of bytes that the peer's kernel has not acknowledged.
	Unsent() int

	// Stop ends all transfers. Drained reports whether none of them can touch memory any longer and all parts
	// that had arrived have been reported to the Sink.
	Stop() error
	Drained() bool
	// Close releases the carrier's resources. It may be called again.
	Close() error
}

// Part is a part of a message to send.
type Part struct {
	Request int    // the request that the part belongs to, or NoRequest
	Eager   *Eager // of a part that is a whole message sent before its grant; nil otherwise
	Grant   *Grant
	Local   uintptr // address of its bytes
	Offset  uint64  // offset in the granted buffer
	Size    int
	Imm     Imm
	Region  *Region // the registered region that holds the bytes
	// Window is not 0 in a part of a put: it is the number of the receiver's window. Grant then holds the window's address and
	// keys, and Offset is an offset in the window. Only part number and size of the Imm are used, and the receiver is not
	// notified by devices.
	Window uint32
	// Inline says that a device may take a copy of the bytes while they are sent: the processor can read them.
	Inline bool
}

// PlacedHeader returns what the receiver needs to place the part, on a lane whose carrier places parts itself: the immediate, or the
// code of a put; and the offset. A part of a brief signal has to be empty there.
func (p *Part) PlacedHeader() (code uint32, offset uint64) {
	switch {
	case p.Window != 0:
		return PutCode(p.Window), p.Offset
	case p.Imm.Brief:
		m := p.Imm
		m.Brief, m.Writes = false, m.Number
		return m.Encode(), briefOffset
	}
	return p.Imm.Encode(), p.Offset
}

// NoRequest is the request of a part whose delivery no request waits for.
const NoRequest = -1

// Sink is the message layer of a connection, as its lanes call it, with the connection's mutex held.
type Sink interface {
	// Delivered reports that the peer has received a part of a request.
	Delivered(l *Lane, request, part int)
	// Place returns the address for a part that begins to arrive on a lane whose carrier copies or reads the
	// bytes itself, and the region of that address; nil if the part is empty. It returns false, and has ended
	// the connection, if the peer must not send the part. v is the part's code, as in Dropped and Arrived.
	Place(l *Lane, v uint32, offset uint64, size uint32) (addr uintptr, r *Region, ok bool)
	// Dropped reports that the part which began to arrive last on the lane will not be completed there.
	Dropped(l *Lane, v uint32)
	// Arrived reports that a part has arrived completely.
	Arrived(l *Lane, v uint32, size int64)
	// Eager reports that an eager message has arrived completely, or that the sender requests grants. The
	// carrier reuses b after the call.
	Eager(l *Lane, e Eager, b []byte)
	// EagerMatched reports that an eager message has been copied into its buffer at the receiver. It returns an
	// error if the report contradicts what was sent.
	EagerMatched(t EagerMatch) error
	// Granted reports that a grant has arrived which no device writes into the ring. It returns an error if the
	// grant breaks the protocol.
	Granted(seq uint64, entries []Grant) error
	// Regranted reports that a grant that was sent again is in the sender's ring.
	Regranted(l *Lane, slot uint8)
}

// Owner is the connection that holds the lanes. Its methods may be called from any goroutine, with or without
// the connection's mutex.
type Owner interface {
	// Fail ends the connection.
	Fail(err error)
	// ReportFailure reports that a lane is broken. The connection continues on the others.
	ReportFailure(l *Lane, err error)
	// Suspect reports that a lane may carry nothing at present, because a relay does not answer. The connection
	// stops using it if another path is in service and the lane delivers nothing until the next such report.
	Suspect(l *Lane, err error)
	// PortDown reports that a port has lost its carrier. The connection stops using the port's lanes if it has
	// others.
	PortDown(p Port)
}

// Flushed marks the error of a work request that was flushed because its lane had failed before, for a reason
// that this error does not know.
type Flushed struct{ Cause error }

func (f Flushed) Error() string { return f.Cause.Error() }
func (f Flushed) Unwrap() error { return f.Cause }
