package ncclnet

import (
	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// What this package uses of the transport. Tests put another one behind it; a
// nil result with a nil error means "not yet" throughout.
type (
	network interface {
		Device() topology.Device
		GPUs() []topology.Slot
		Listen() (listener, error)
		Dial(handshake.Handle) dialing
		// UsedBy says which version of its interface NCCL uses.
		UsedBy(version int)
		// Settle waits, a moment at most, until the peers' kernels have what was sent.
		Settle()
		Close() error
	}
	listener interface {
		Handle() [HandleSize]byte
		Accept() (receiver, error)
		Close() error
	}
	dialing interface {
		Poll() (sender, error)
		Close() error
	}
	// memory is what both halves of a connection have in common.
	memory interface {
		RegMR(addr, length uintptr) (*lane.Region, error)
		RegDmaBufMR(addr, length uintptr, offset uint64, fd int) (*lane.Region, error)
		DeregMR(*lane.Region) error
		Watch(*conn.Watch)
		Board(comm uint64) uintptr // where C may read its answers, once comm is on it; or 0
		Fail(error)
		Close() error
	}
	sender interface {
		memory
		Isend(addr uintptr, size int, tag int32, r *lane.Region) (request, error)
		Request(index int) request
	}
	receiver interface {
		memory
		Irecv(bufs []conn.Buffer) (request, error)
		Request(index int) request
	}
	request interface {
		Index() int          // below maxRequests, unique among a connection's outstanding ones
		Generation() uint64  // counts the uses of the index
		Outstanding() uint64 // that generation while it is outstanding, or 0
		Trace() *conn.Trace
		Test(*conn.Sizes) (done bool, err error)
	}
)

// The real one. These types turn nil pointers into nil interfaces.
type (
	meshNetwork  struct{ *transport.Transport }
	meshListener struct{ *transport.Listener }
	meshDialing  struct{ *transport.Dialing }
	meshSender   struct{ *conn.Sender }
	meshReceiver struct{ *conn.Receiver }
)

func openTransport(o transport.Options) (network, error) {
	t, err := transport.New(o)
	if err != nil {
		return nil, err
	}
	return meshNetwork{t}, nil
}

func (m meshNetwork) Listen() (listener, error) {
	l, err := m.Transport.Listen()
	if err != nil {
		return nil, err
	}
	return meshListener{l}, nil
}

func (m meshNetwork) Dial(h handshake.Handle) dialing {
	return meshDialing{m.Transport.Dial(h)}
}

func (m meshListener) Accept() (receiver, error) {
	c, err := m.Listener.Accept()
	if c == nil || err != nil {
		return nil, err
	}
	return meshReceiver{c}, nil
}

func (m meshDialing) Poll() (sender, error) {
	c, err := m.Dialing.Poll()
	if c == nil || err != nil {
		return nil, err
	}
	return meshSender{c}, nil
}

func (m meshSender) Isend(addr uintptr, size int, tag int32, r *lane.Region) (request, error) {
	q, err := m.Sender.Isend(addr, size, tag, r)
	if q == nil || err != nil {
		return nil, err
	}
	return q, nil
}

func (m meshReceiver) Irecv(bufs []conn.Buffer) (request, error) {
	q, err := m.Receiver.Irecv(bufs)
	if q == nil || err != nil {
		return nil, err
	}
	return q, nil
}

func (m meshSender) Request(i int) request {
	if q := m.Sender.Request(i); q != nil {
		return q
	}
	return nil
}

func (m meshReceiver) Request(i int) request {
	if q := m.Receiver.Request(i); q != nil {
		return q
	}
	return nil
}
