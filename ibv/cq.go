package ibv

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// A CompChannel delivers completion events to a descriptor.
type CompChannel struct {
	ctx  *Context
	life life
	info ChannelInfo

	mu    sync.Mutex
	cqs   map[uintptr]*CQ // by handle
	taken [2]uintptr      // room for what C says of an event; of one caller at a time
}

// CreateCompChannel makes a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{ctx: c, cqs: map[uintptr]*CQ{}}
	if err := ch.life.begin(kindCompChannel, &c.life); err != nil {
		return nil, err
	}
	var errno syscall.Errno
	if ch.info, errno = c.lib.driver.CreateCompChannel(c.info.Handle); errno != 0 {
		ch.life.abandon()
		return nil, newError("create_comp_channel", c.device.info.Name, 0, errno, "")
	}
	return ch, nil
}

// FD becomes readable when an event is there. It belongs to the channel. It is -1 for a channel without a descriptor, which
// never blocks; a [Waiter] waits for either kind.
func (ch *CompChannel) FD() int { return ch.info.FD }

// Handle is what the driver knows the channel by.
func (ch *CompChannel) Handle() uintptr { return ch.info.Handle }

// SetNonblock makes GetEvent return an error that is EAGAIN, rather than block, where there is no event.
func (ch *CompChannel) SetNonblock() error {
	if ch.info.FD < 0 {
		return nil
	}
	return os.NewSyscallError("fcntl", syscall.SetNonblock(ch.info.FD, true))
}

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
	return cq, newError("get_cq_event", ch.ctx.device.info.Name, 0, errno, detail)
}

// take takes one event.
func (ch *CompChannel) take() (*CQ, syscall.Errno) {
	handle, errno := ch.ctx.lib.driver.GetCQEvent(ch.info.Handle, &ch.taken)
	if errno != 0 {
		return nil, errno
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	cq := ch.cqs[handle]
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
			return newError("get_cq_event", ch.ctx.device.info.Name, 0, errno, "")
		case cq != nil:
			ch.AckEvents(cq, 1)
		}
	}
}

// AckEvents acknowledges n events that GetEvent returned for cq. Closing the queue acknowledges the rest.
func (ch *CompChannel) AckEvents(cq *CQ, n int) {
	if n > 0 && cq.life.check() == nil {
		cq.unacked.Add(-int64(n))
		cq.ctx.lib.driver.AckCQEvents(cq.info.Handle, n)
	}
}

// Close destroys the channel.
func (ch *CompChannel) Close() error {
	dev := ch.ctx.device.info.Name
	return ch.life.end("completion channel on "+dev, func() error {
		return newError("destroy_comp_channel", dev, 0, ch.ctx.lib.driver.DestroyCompChannel(ch.info.Handle), "")
	})
}

// A CQ is a completion queue.
type CQ struct {
	ctx     *Context
	life    life
	info    CQInfo
	pollFn  uintptr      // of libibverbs
	ch      *CompChannel // or nil
	unacked atomic.Int64
}

// CreateCQ makes a completion queue for at least the given number of completions. The channel may be nil.
func (c *Context) CreateCQ(entries int, ch *CompChannel) (*CQ, error) {
	cq := &CQ{ctx: c, pollFn: c.info.ops.pollCQ, ch: ch}
	parents := []*life{&c.life}
	var channel uintptr
	if ch != nil {
		channel = ch.info.Handle
		parents = append(parents, &ch.life)
	}
	if err := cq.life.begin(kindCQ, parents...); err != nil {
		return nil, err
	}
	var errno syscall.Errno
	if cq.info, errno = c.lib.driver.CreateCQ(c.info.Handle, entries, channel); errno != 0 {
		cq.life.abandon()
		detail := fmt.Sprintf("%d entries", entries)
		if errno == syscall.ENOMEM {
			detail += "; " + memlockHint()
		}
		return nil, newError("create_cq", c.device.info.Name, 0, errno, detail)
	}
	cq.enter()
	return cq, nil
}

// enter makes events find the queue.
func (cq *CQ) enter() {
	cq.ctx.cqs.Store(cq.info.Handle, cq)
	if ch := cq.ch; ch != nil {
		ch.mu.Lock()
		ch.cqs[cq.info.Handle] = cq
		ch.mu.Unlock()
	}
}

func (cq *CQ) leave() {
	cq.ctx.cqs.Delete(cq.info.Handle)
	if ch := cq.ch; ch != nil {
		ch.mu.Lock()
		delete(ch.cqs, cq.info.Handle)
		ch.mu.Unlock()
	}
}

// Context is the device it belongs to.
func (cq *CQ) Context() *Context { return cq.ctx }

// Entries is the capacity as granted.
func (cq *CQ) Entries() int { return cq.info.Entries }

// Raw returns what C calls to take completions as Poll does: the function, and the queue to give it; both 0 where a simulation has
// replaced libibverbs. They hold until the queue is closed.
func (cq *CQ) Raw() (poll, queue uintptr) {
	if cq.info.Queue != nil {
		return 0, 0
	}
	return cq.pollFn, cq.info.Handle
}

// Poll takes up to len(wc) completions and returns how many there were.
func (cq *CQ) Poll(wc []WC) (int, error) {
	if cq.life.ended.Load() {
		return 0, net.ErrClosed
	}
	if len(wc) == 0 {
		return 0, nil
	}
	var n int32
	if cq.info.Queue == nil {
		n = pollCQ(cq.pollFn, cq.info.Handle, wc)
	} else {
		n = cq.info.Queue.Poll(wc)
	}
	if n < 0 {
		return 0, newError("poll_cq", cq.ctx.device.info.Name, 0, syscall.EIO,
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
	var errno syscall.Errno
	if cq.info.Queue == nil {
		errno = reqNotifyCQ(cq.ctx.info.ops.reqNotifyCQ, cq.info.Handle, solicitedOnly)
	} else {
		errno = cq.info.Queue.ReqNotify(solicitedOnly)
	}
	return newError("req_notify_cq", cq.ctx.device.info.Name, 0, errno, "")
}

// Close destroys the queue.
func (cq *CQ) Close() error {
	c := cq.ctx
	return cq.life.end("completion queue on "+c.device.info.Name, func() error {
		if n := cq.unacked.Swap(0); n > 0 { // destroy_cq waits for them
			c.lib.driver.AckCQEvents(cq.info.Handle, int(n))
		}
		cq.leave()
		errno := c.lib.driver.DestroyCQ(cq.info.Handle)
		if errno != 0 {
			cq.enter()
		}
		return newError("destroy_cq", c.device.info.Name, 0, errno, "")
	})
}
