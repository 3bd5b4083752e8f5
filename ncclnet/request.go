package ncclnet

import (
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/message"
)

// A Buffer is one of the receives that an irecv groups.
type Buffer struct {
	Addr uintptr
	Size int // room for the message, which may be shorter
	Tag  int32
	MR   Handle
}

// Isend sends size bytes. Zero means that the receiver is not ready or too much
// is outstanding: call again.
func (n *Net) Isend(comm Handle, addr uintptr, size int, tag int32, mr Handle) (Handle, Result) {
	c, err := n.sends.find(comm)
	if err != nil {
		return 0, n.result("isend", err)
	}
	if size < 0 {
		return 0, n.result("isend", errSize(size))
	}
	r, err := n.region(comm, mr, size)
	if err != nil {
		return 0, n.result("isend", err)
	}
	q, err := c.conn.Isend(addr, size, tag, r)
	if q == nil || err != nil {
		return 0, n.failed(&c.comm, "isend", err)
	}
	h, err := c.posted(q)
	return h, n.result("isend", err)
}

// Irecv makes up to MaxRecvs buffers ready for as many messages; one request
// covers them all. Zero means: too much is outstanding, call again.
func (n *Net) Irecv(comm Handle, bufs []Buffer) (Handle, Result) {
	c, err := n.recvs.find(comm)
	if err != nil {
		return 0, n.result("irecv", err)
	}
	if len(bufs) < 1 || len(bufs) > MaxRecvs {
		return 0, n.result("irecv", fmt.Errorf("%w: a group must have 1 to %d buffers", errArgument, MaxRecvs))
	}
	if !c.mu.TryLock() {
		return 0, ncclSuccess
	}
	defer c.mu.Unlock()
	for i := range bufs {
		b := &bufs[i]
		if b.Size < 0 {
			return 0, n.result("irecv", errSize(b.Size))
		}
		r, err := n.region(comm, b.MR, b.Size)
		if err != nil {
			return 0, n.result("irecv", err)
		}
		c.bufs[i] = message.Buffer{Addr: b.Addr, Size: b.Size, Tag: b.Tag, Region: r}
	}
	q, err := c.conn.Irecv(c.bufs[:len(bufs)])
	if q == nil || err != nil {
		return 0, n.failed(&c.comm, "irecv", err)
	}
	h, err := c.posted(q)
	return h, n.result("irecv", err)
}

// Test reports whether a request is done and then, in sizes, the bytes of each
// of its count messages. After that the request is no more.
func (n *Net) Test(h Handle, sizes *[MaxRecvs]int) (done bool, count int, r Result) {
	q, c, err := n.request(h)
	if err != nil {
		return false, 0, n.result("test", err)
	}
	done, got, err := q.Test()
	if err != nil {
		return false, 0, n.failed(c, "test", err)
	}
	if !done {
		return false, 0, ncclSuccess
	}
	for i := range got.N {
		sizes[i] = int(got.Bytes[i])
	}
	c.requests[h.requestIndex()].Store(h.requestGen() << 1)
	return true, got.N, ncclSuccess
}

// Iflush makes received data visible to a GPU. Host memory needs none, so there
// is never a request; only the connection is checked.
func (n *Net) Iflush(comm Handle) Result {
	_, err := n.recvs.find(comm)
	return n.result("iflush", err)
}

// request resolves the handle of an outstanding request.
func (n *Net) request(h Handle) (request, *comm, error) {
	switch h.kind() {
	case kindRequest | kindSend:
		c, err := n.sends.find(h.comm())
		if err == nil {
			err = c.outstanding(h)
		}
		if err != nil {
			return nil, nil, err
		}
		return c.conn.Request(h.requestIndex()), &c.comm, nil
	case kindRequest | kindRecv:
		c, err := n.recvs.find(h.comm())
		if err == nil {
			err = c.outstanding(h)
		}
		if err != nil {
			return nil, nil, err
		}
		return c.conn.Request(h.requestIndex()), &c.comm, nil
	}
	return nil, nil, fmt.Errorf("%w: %s is not a request of this plugin", errArgument, h)
}

func (c *comm) outstanding(h Handle) error {
	if c.requests[h.requestIndex()].Load() != h.requestGen()<<1|1 {
		return fmt.Errorf("%w: request %s is done, or was never posted", errArgument, h)
	}
	return nil
}

// posted gives a request of the transport its handle.
func (c *comm) posted(q request) (Handle, error) {
	i := q.Index()
	if i < 0 || i >= maxRequests {
		return 0, fmt.Errorf("%w: request index %d; want 0 to %d", fault.ErrInternal, i, maxRequests-1)
	}
	last := c.requests[i].Load()
	if last&1 != 0 {
		return 0, fmt.Errorf("%w: request index %d is outstanding already", fault.ErrInternal, i)
	}
	gen := (last>>1 + 1) & (1<<requestGenBits - 1)
	c.requests[i].Store(gen<<1 | 1)
	return c.handle.request(i, gen), nil
}

func errSize(size int) error {
	return fmt.Errorf("%w: a message of %d bytes", errArgument, size)
}
