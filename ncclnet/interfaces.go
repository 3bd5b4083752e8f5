package ncclnet

import (
	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// The interfaces of the transport that this package uses. Tests replace the implementation. A nil result with a nil
// error always means "not yet".
type (
	network interface {
		Device() topology.Device
		GPUs() []topology.Slot
		GPUReach() transport.GPUReach
		Listen() (listener, error)
		Dial(handshake.Handle) dialing
		// UsedBy records which version of the plugin interface NCCL uses.
		UsedBy(version int)
		// FlushBeforeExit waits until the peers' kernels have received the sent data, for a limited time.
		FlushBeforeExit()
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
	// memory is the common part of the two ends of a connection.
	memory interface {
		RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error)
		RegDmaBufMR(kind lane.MemoryKind, addr, length uintptr, offset uint64, fd int) (*lane.Region, error)
		DeregMR(*lane.Region) error
		Watch(*conn.Watch)
		Board(comm uint64) uintptr // publishes the board for comm and returns its address, from which C may answer requests; or 0
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
		Iflush(conn.Buffer) (request, error)
		Request(index int) request // of Irecv or Iflush
	}
	request interface {
		Index() int          // below maxRequests, unique among the outstanding requests of a connection
		Generation() uint64  // counts the uses of the index
		Outstanding() uint64 // the generation while the request is outstanding, otherwise 0
		Trace() *conn.Trace
		Test(*conn.Sizes) (done bool, err error)
	}
)

// The real implementation. These types turn nil pointers into nil interfaces.
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

func (m meshReceiver) Iflush(b conn.Buffer) (request, error) {
	f, err := m.Receiver.Iflush(b)
	if f == nil || err != nil {
		return nil, err
	}
	return f, nil
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
	if f := m.Flushing(i); f != nil {
		return f
	}
	return nil
}
