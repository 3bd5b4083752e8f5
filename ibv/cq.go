package ibv

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// A CompChannel delivers completion events to a descriptor.
type CompChannel struct {
	ctx  *Context
	life life
	info ChannelInfo

	taken [2]uintptr // room for what C says of an event; of one caller at a time
}

// CreateCompChannel makes a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{ctx: c}
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

// SetNonblock makes Drain return when it has taken all events, rather than block until there is another one.
func (ch *CompChannel) SetNonblock() error {
	if ch.info.FD < 0 {
		return nil
	}
	return os.NewSyscallError("fcntl", syscall.SetNonblock(ch.info.FD, true))
}

// Drain takes and acknowledges all events of the channel, and returns their number. It blocks the thread unless SetNonblock was
// called, and allocates nothing. One goroutine calls it at a time. Events that nobody takes do not hold up the Close of a queue.
func (ch *CompChannel) Drain() (events int, err error) {
	if err := ch.life.check(); err != nil {
		return 0, err
	}
	for ; ; events++ {
		cq, errno := ch.ctx.lib.driver.GetCQEvent(ch.info.Handle, &ch.taken)
		switch {
		case errno == syscall.EAGAIN || errno == syscall.EINTR:
			return events, nil
		case errno != 0:
			return events, newError("get_cq_event", ch.ctx.device.info.Name, 0, errno, "")
		}
		ch.ctx.lib.driver.AckCQEvents(cq, 1) // the queue is still there: destroy_cq waits for this
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
	ctx    *Context
	life   life
	info   CQInfo
	pollFn uintptr // of libibverbs
}

// CreateCQ makes a completion queue for at least the given number of completions. The channel may be nil.
func (c *Context) CreateCQ(entries int, ch *CompChannel) (*CQ, error) {
	cq := &CQ{ctx: c, pollFn: c.info.ops.pollCQ}
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
	c.cqs.Store(cq.info.Handle, cq)
	return cq, nil
}

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
		c.cqs.Delete(cq.info.Handle)
		errno := c.lib.driver.DestroyCQ(cq.info.Handle)
		if errno != 0 {
			c.cqs.Store(cq.info.Handle, cq)
		}
		return newError("destroy_cq", c.device.info.Name, 0, errno, "")
	})
}
