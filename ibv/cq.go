package ibv

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// A CompChannel delivers completion events to a descriptor.
type CompChannel struct {
	ctx  *Context
	life life
	ptr  uintptr

	mu    sync.Mutex
	cqs   map[uintptr]*CQ // by C address
	taken [2]uintptr      // what C says of an event; of one caller at a time
}

// CreateCompChannel makes a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{ctx: c, cqs: map[uintptr]*CQ{}}
	if err := ch.life.begin(kindCompChannel, &c.life); err != nil {
		return nil, err
	}
	var errno syscall.Errno
	if ch.ptr, errno = c.lib.createCompChannel(c.ptr); errno != 0 {
		ch.life.abandon()
		return nil, newError("create_comp_channel", c.device.name, 0, errno, "")
	}
	return ch, nil
}

// FD becomes readable when an event is there. It belongs to the channel.
func (ch *CompChannel) FD() int { return int(at[cCompChannel](ch.ptr).fd) }

// GetEvent takes one event. It blocks the thread while there is none, unless FD was made non-blocking: then the error is
// EAGAIN.
func (ch *CompChannel) GetEvent() (*CQ, error) {
	if err := ch.life.check(); err != nil {
		return nil, err
	}
	cq, errno := ch.take()
	detail := ""
	if errno == 0 && cq == nil {
		errno, detail = syscall.EINVAL, fmt.Sprintf("no completion queue at %#x", ch.taken[0])
	}
	return cq, newError("get_cq_event", ch.ctx.device.name, 0, errno, detail)
}

// take takes one event.
func (ch *CompChannel) take() (*CQ, syscall.Errno) {
	ptr, errno := ch.ctx.lib.getCQEvent(ch.ptr, &ch.taken)
	if errno != 0 {
		return nil, errno
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	cq := ch.cqs[ptr]
	if cq != nil {
		cq.unacked.Add(1)
	}
	return cq, 0
}

// Drain takes and acknowledges all events that are there, when FD was made non-blocking. It allocates nothing.
func (ch *CompChannel) Drain() error {
	if err := ch.life.check(); err != nil {
		return err
	}
	for {
		cq, errno := ch.take()
		switch {
		case errno == syscall.EAGAIN || errno == syscall.EINTR:
			return nil
		case errno != 0:
			return newError("get_cq_event", ch.ctx.device.name, 0, errno, "")
		case cq != nil:
			ch.AckEvents(cq, 1)
		}
	}
}

// AckEvents acknowledges n events that GetEvent returned for cq. Closing the queue acknowledges the rest.
func (ch *CompChannel) AckEvents(cq *CQ, n int) {
	if n > 0 && cq.life.check() == nil {
		cq.unacked.Add(-int64(n))
		cq.ctx.lib.ackCQEvents(cq.ptr, n)
	}
}

// Close destroys the channel.
func (ch *CompChannel) Close() error {
	dev := ch.ctx.device.name
	return ch.life.end("completion channel on "+dev, func() error {
		return newError("destroy_comp_channel", dev, 0, ch.ctx.lib.destroyCompChannel(ch.ptr), "")
	})
}

// A CQ is a completion queue.
type CQ struct {
	ctx     *Context
	life    life
	ptr     uintptr
	pollFn  uintptr
	ch      *CompChannel // or nil
	unacked atomic.Int64
}

// CreateCQ makes a completion queue for at least the given number of completions. The channel may be nil.
func (c *Context) CreateCQ(entries int, ch *CompChannel) (*CQ, error) {
	cq := &CQ{ctx: c, pollFn: c.ops.pollCQ, ch: ch}
	parents := []*life{&c.life}
	var channel uintptr
	if ch != nil {
		channel = ch.ptr
		parents = append(parents, &ch.life)
	}
	if err := cq.life.begin(kindCQ, parents...); err != nil {
		return nil, err
	}
	var errno syscall.Errno
	if cq.ptr, errno = c.lib.createCQ(c.ptr, entries, channel); errno != 0 {
		cq.life.abandon()
		detail := fmt.Sprintf("%d entries", entries)
		if errno == syscall.ENOMEM {
			detail += "; " + memlockHint()
		}
		return nil, newError("create_cq", c.device.name, 0, errno, detail)
	}
	cq.enter()
	return cq, nil
}

// enter makes events find the queue.
func (cq *CQ) enter() {
	cq.ctx.cqs.Store(cq.ptr, cq)
	if ch := cq.ch; ch != nil {
		ch.mu.Lock()
		ch.cqs[cq.ptr] = cq
		ch.mu.Unlock()
	}
}

func (cq *CQ) leave() {
	cq.ctx.cqs.Delete(cq.ptr)
	if ch := cq.ch; ch != nil {
		ch.mu.Lock()
		delete(ch.cqs, cq.ptr)
		ch.mu.Unlock()
	}
}

// Context is the device it belongs to.
func (cq *CQ) Context() *Context { return cq.ctx }

// Entries is the capacity as granted.
func (cq *CQ) Entries() int { return int(at[cCQ](cq.ptr).cqe) }

// Poll takes up to len(wc) completions and returns how many there were.
func (cq *CQ) Poll(wc []WC) (int, error) {
	if cq.life.ended.Load() {
		return 0, net.ErrClosed
	}
	if len(wc) == 0 {
		return 0, nil
	}
	n := pollCQ(cq.pollFn, cq.ptr, wc)
	if n < 0 {
		return 0, newError("poll_cq", cq.ctx.device.name, 0, syscall.EIO,
			fmt.Sprintf("poll_cq returned %d: the completion queue has overflowed or the device is gone", n))
	}
	return int(n), nil
}

// ReqNotify asks for an event on the queue's channel at the next completion, or the next solicited one. Of completions that
// are there already some devices tell at once (mlx5), others never (rxe): poll after asking.
func (cq *CQ) ReqNotify(solicitedOnly bool) error {
	if err := cq.life.check(); err != nil {
		return err
	}
	return newError("req_notify_cq", cq.ctx.device.name, 0, reqNotifyCQ(cq.ctx.ops.reqNotifyCQ, cq.ptr, solicitedOnly), "")
}

// Close destroys the queue.
func (cq *CQ) Close() error {
	c := cq.ctx
	return cq.life.end("completion queue on "+c.device.name, func() error {
		if n := cq.unacked.Swap(0); n > 0 { // destroy_cq waits for them
			c.lib.ackCQEvents(cq.ptr, int(n))
		}
		cq.leave()
		errno := c.lib.destroyCQ(cq.ptr)
		if errno != 0 {
			cq.enter()
		}
		return newError("destroy_cq", c.device.name, 0, errno, "")
	})
}
