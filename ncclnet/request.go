package ncclnet

import (
	"fmt"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A Buffer is one of the receives that an irecv groups.
type Buffer struct {
	Addr uintptr
	Size int // maximum size of the message in bytes
	Tag  int32
	MR   Handle
	Step uintptr // identifies the message for NCCL's profiler; or 0
}

// Sizes are the sizes of a request's messages in bytes, in NCCL's layout.
type Sizes = conn.Sizes

// Isend sends size bytes. Zero means: call again, because the receiver is not ready or too many requests are
// outstanding. step identifies the message for NCCL's profiler, or is 0.
func (n *Net) Isend(comm Handle, addr uintptr, size int, tag int32, mr Handle, step uintptr) (Handle, Result) {
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
		return 0, n.failed(&c.failure, "isend", err)
	}
	h := c.posted(q)
	if c.profiler != nil && step != 0 {
		c.profiler.track(q, h, Buffer{Step: step})
	}
	return h, ncclSuccess
}

// Irecv posts up to MaxRecvs buffers for as many messages, all covered by one request. Zero means: call again, because
// too many requests are outstanding.
func (n *Net) Irecv(comm Handle, bufs []Buffer) (Handle, Result) {
	c, err := n.recvs.find(comm)
	if err != nil {
		return 0, n.result("irecv", err)
	}
	if len(bufs) < 1 || len(bufs) > MaxRecvs {
		return 0, n.result("irecv", fmt.Errorf("%w: a receive of %d buffers; want 1 to %d", errArgument, len(bufs), MaxRecvs))
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
		to := &c.bufs[i]
		to.Addr, to.Size, to.Tag, to.Region = b.Addr, b.Size, b.Tag, r
	}
	q, err := c.conn.Irecv(c.bufs[:len(bufs)])
	if q == nil || err != nil {
		return 0, n.failed(&c.failure, "irecv", err)
	}
	h := c.posted(q)
	if c.profiler != nil {
		c.profiler.track(q, h, bufs...)
	}
	return h, ncclSuccess
}

// Test reports whether a request is done. If it is done and sizes is not nil, Test writes the size of each of its
// messages, and no further entries. After that the request does not exist any more.
func (n *Net) Test(h Handle, sizes *Sizes) (done bool, r Result) {
	q, c, err := n.request(h)
	if err != nil {
		return false, n.result("test", err)
	}
	if done, err = q.Test(sizes); err != nil {
		return false, n.failed(&c.failure, "test", err)
	}
	return done, ncclSuccess
}

// Iflush makes data that has arrived visible to a GPU. bufs are the buffers of a receive that is done, with the sizes of its
// messages; all other data that has arrived on the connection becomes visible too. Zero means that there is nothing to do:
// no buffer with data is in GPU memory, or all is visible.
func (n *Net) Iflush(comm Handle, bufs []Buffer) (Handle, Result) {
	c, err := n.recvs.find(comm)
	if err != nil {
		return 0, n.result("iflush", err)
	}
	for i := len(bufs) - 1; i >= 0; i-- {
		b := &bufs[i]
		if b.Size <= 0 {
			continue
		}
		r, err := n.region(comm, b.MR, b.Size)
		if err != nil {
			return 0, n.result("iflush", err)
		}
		if r.Kind != lane.GPUMemory {
			continue
		}
		q, err := c.conn.Iflush(conn.Buffer{Addr: b.Addr, Size: b.Size, Region: r})
		if q == nil || err != nil {
			return 0, n.failed(&c.failure, "iflush", err)
		}
		return c.posted(q), ncclSuccess
	}
	return 0, ncclSuccess
}

// request returns the outstanding request of a handle, and its connection.
func (n *Net) request(h Handle) (request, *comm, error) {
	var q request
	var c *comm
	switch h.kind() {
	case kindRequest | kindSend:
		s, err := n.sends.find(h.comm())
		if err != nil {
			return nil, nil, err
		}
		q, c = s.conn.Request(h.requestIndex()), &s.comm
	case kindRequest | kindRecv:
		r, err := n.recvs.find(h.comm())
		if err != nil {
			return nil, nil, err
		}
		q, c = r.conn.Request(h.requestIndex()), &r.comm
	default:
		return nil, nil, fmt.Errorf("%w: %s is not a request of this plugin", errArgument, h)
	}
	if q == nil || !h.hasGeneration(q.Outstanding()) {
		return nil, nil, fmt.Errorf("%w: request %s is done, or was never posted", errArgument, h)
	}
	return q, c, nil
}

// posted returns the handle of a request of the transport.
func (c *comm) posted(q request) Handle { return c.handle.request(q.Index(), q.Generation()) }

func errSize(size int) error {
	return fmt.Errorf("%w: a message of %d bytes: the size must not be negative", errArgument, size)
}
