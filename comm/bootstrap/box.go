package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"ncclmesh/ibv"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// An outbox sends messages to one member, or to the root. Its methods are called by one goroutine at a time.
type outbox interface {
	put(message []byte) // queues a message, which the outbox may keep
	poll() error        // sends; an error means that the other side cannot be reached any more
	idle() bool         // all messages were delivered
	close() error
}

// An inbox receives messages. Its methods are called by one goroutine at a time.
type inbox interface {
	poll() ([]byte, error) // returns the next message, which belongs to the caller, or nil if there is none yet
	close() error
}

const (
	chunk      = 32 << 10 // bytes of one message of a connection
	chunkHead  = 8        // the first chunk of a message begins with the size of the message
	maxMessage = 1 << 30  // bytes, sealed
)

// buffer is registered memory of one chunk.
type buffer struct {
	memory *ibv.Memory
	region *lane.Region
}

// newBuffer registers a buffer with a connection.
func newBuffer(c *conn.Conn) (b buffer, err error) {
	if b.memory, err = ibv.Alloc(chunk); err != nil {
		return b, err
	}
	if b.region, err = c.RegMR(lane.HostMemory, b.memory.Addr(), chunk); err != nil {
		err = errors.Join(err, b.memory.Free())
	}
	return b, err
}

// closeWith closes the connection, and frees the memory unless a device may still use it.
func (b *buffer) closeWith(c interface{ Close() error }) error {
	if err := c.Close(); err != nil {
		return err
	}
	return b.memory.Free()
}

// connOutbox is an outbox over a connection.
type connOutbox struct {
	conn *conn.Sender
	seal *seal
	buffer
	number  uint64   // of messages that were put
	queue   [][]byte // the first one may have been sent in part
	sent    int      // bytes of the first one that were sent
	begun   bool     // the first chunk of the first one was sent
	request *conn.Request
	last    int // bytes of the queue's first message that the request sends
}

// newConnOutbox returns an outbox over a connection, or closes the connection.
func newConnOutbox(c *conn.Sender, s *seal) (outbox, error) {
	b, err := newBuffer(&c.Conn)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &connOutbox{conn: c, seal: s, buffer: b}, nil
}

func (o *connOutbox) put(message []byte) {
	o.number++
	o.queue = append(o.queue, o.seal.close(o.number, o.conn, message))
}

func (o *connOutbox) idle() bool   { return len(o.queue) == 0 }
func (o *connOutbox) close() error { return o.closeWith(o.conn) }

func (o *connOutbox) poll() error {
	if o.request != nil {
		done, err := o.request.Test(nil)
		if err != nil || !done {
			return err
		}
		o.request, o.begun = nil, true
		if o.sent += o.last; o.sent == len(o.queue[0]) {
			o.queue, o.sent, o.begun = o.queue[1:], 0, false
		}
	}
	if len(o.queue) == 0 {
		return nil
	}
	to, size := o.memory.Bytes()[:chunk], 0
	if !o.begun {
		binary.BigEndian.PutUint64(to, uint64(len(o.queue[0])))
		size = chunkHead
	}
	n := copy(to[size:], o.queue[0][o.sent:])
	r, err := o.conn.Isend(o.memory.Addr(), size+n, 0, o.region)
	if err == nil && r != nil {
		o.request, o.last = r, n
	}
	return err
}

// connInbox is an inbox over a connection.
type connInbox struct {
	conn *conn.Receiver
	seal *seal
	buffer
	number  uint64 // of messages that have arrived
	request *conn.Request
	message []byte // the part of the present message that has arrived
	size    int    // of the present message; 0: none has begun
}

// newConnInbox returns an inbox over a connection, or closes the connection.
func newConnInbox(c *conn.Receiver, s *seal) (inbox, error) {
	b, err := newBuffer(&c.Conn)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &connInbox{conn: c, seal: s, buffer: b}, nil
}

func (i *connInbox) close() error { return i.closeWith(i.conn) }

func (i *connInbox) poll() ([]byte, error) {
	if i.request == nil {
		r, err := i.conn.Irecv([]conn.Buffer{{Addr: i.memory.Addr(), Size: chunk, Region: i.region}})
		if err != nil || r == nil {
			return nil, err
		}
		i.request = r
	}
	var sizes conn.Sizes
	done, err := i.request.Test(&sizes)
	if err != nil || !done {
		return nil, err
	}
	i.request = nil
	return i.take(i.memory.Bytes()[:sizes[0]])
}

// take adds a chunk to the present message, and returns the message if it is complete.
func (i *connInbox) take(b []byte) ([]byte, error) {
	if i.size == 0 {
		if len(b) <= chunkHead {
			return nil, fmt.Errorf("%w: a bootstrap message begins with %d bytes", fault.ErrProtocol, len(b))
		}
		n := binary.BigEndian.Uint64(b)
		if n == 0 || n > maxMessage {
			return nil, fmt.Errorf("%w: a bootstrap message of %d bytes, at most %d are accepted", fault.ErrProtocol, n, maxMessage)
		}
		i.size, b = int(n), b[chunkHead:]
	}
	if len(i.message)+len(b) > i.size {
		return nil, fmt.Errorf("%w: a bootstrap message of %d bytes goes on after its end", fault.ErrProtocol, i.size)
	}
	if i.message = append(i.message, b...); len(i.message) < i.size {
		return nil, nil
	}
	m := i.message
	i.message, i.size = nil, 0
	i.number++
	return i.seal.open(i.number, m)
}

// A pipe is an outbox and the inbox at its other end, within one process.
type pipe struct {
	mu     sync.Mutex
	queue  [][]byte
	closed bool
}

func (p *pipe) put(message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, message)
}

func (p *pipe) next() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 {
		m := p.queue[0]
		p.queue = p.queue[1:]
		return m, nil
	}
	if p.closed {
		return nil, fmt.Errorf("%w: the other side has ended", fault.ErrPeerGone)
	}
	return nil, nil
}

func (p *pipe) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) == 0 || p.closed
}

func (p *pipe) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// pipeIn and pipeOut are the two ends of a pipe.
type (
	pipeIn  struct{ *pipe }
	pipeOut struct{ *pipe }
)

func (p pipeIn) poll() ([]byte, error) { return p.next() }

func (p pipeOut) poll() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: the other side has ended", fault.ErrPeerGone)
	}
	return nil
}
