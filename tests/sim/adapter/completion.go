package adapter

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"ncclmesh/ibv"
)

// A channel is a completion channel.
type channel struct {
	context *context
	handle  uintptr
	users   int
	queue   []*compQueue // whose events nobody has taken; one may stand there several times
	waiters []*waiter    // that wait for it now
}

// What a completion queue was armed for.
const (
	armedNot       = 0
	armedSolicited = 1
	armedNext      = 2
)

// A compQueue is a completion queue.
type compQueue struct {
	context *context
	channel *channel // or nil
	handle  uintptr
	users   int
	depth   int
	entries []entry
	last    time.Duration // when the last entry shows
	armed   int
	overrun bool
	taken   acks // events of the channel
	async   acks
}

// An entry is a completion.
type entry struct {
	ibv.WC
	solicited bool
	qp        *queuePair
	posted    uint64 // number of the request, from 1
	receive   bool
}

func (p *Process) CreateCompChannel(ctx uintptr) (ibv.ChannelInfo, syscall.Errno) {
	c := find(p, p.contexts, ctx)
	errno := p.enter(c.device, "create_comp_channel")
	f := p.fabric
	defer f.mu.Unlock()
	if errno != 0 {
		return ibv.ChannelInfo{}, errno
	}
	ch := &channel{context: c, handle: f.handle()}
	p.channels[ch.handle] = ch
	c.users++
	return ibv.ChannelInfo{Handle: ch.handle, FD: -1}, 0
}

func (p *Process) DestroyCompChannel(handle uintptr) syscall.Errno {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	ch := p.channels[handle]
	if ch.users > 0 {
		return syscall.EBUSY
	}
	ch.context.users--
	delete(p.channels, handle)
	return 0
}

func (p *Process) GetCQEvent(handle uintptr, _ *[2]uintptr) (uintptr, syscall.Errno) {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	ch := p.channels[handle]
	if len(ch.queue) == 0 {
		return 0, syscall.EAGAIN
	}
	q := ch.queue[0]
	ch.queue = ch.queue[1:]
	q.taken.unacked++
	return q.handle, 0
}

func (p *Process) AckCQEvents(handle uintptr, n int) {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	p.cqs[handle].taken.ack(n)
}

func (p *Process) CreateCQ(ctx uintptr, entries int, ch uintptr) (ibv.CQInfo, syscall.Errno) {
	c := find(p, p.contexts, ctx)
	errno := p.enter(c.device, "create_cq")
	f := p.fabric
	defer f.mu.Unlock()
	switch {
	case errno != 0:
		return ibv.CQInfo{}, errno
	case entries < 1 || entries > c.device.limits.CQE:
		return ibv.CQInfo{}, syscall.EINVAL
	case len(p.cqs) >= c.device.limits.CQs:
		return ibv.CQInfo{}, syscall.ENOMEM
	}
	q := &compQueue{context: c, handle: f.handle(), depth: entries}
	if q.channel = p.channels[ch]; q.channel != nil {
		q.channel.users++
	}
	p.cqs[q.handle] = q
	c.users++
	return ibv.CQInfo{Handle: q.handle, Queue: q}, 0
}

func (p *Process) DestroyCQ(handle uintptr) syscall.Errno {
	f := p.fabric
	q := find(p, p.cqs, handle)
	errno := p.enter(q.context.device, "destroy_cq")
	defer f.mu.Unlock()
	switch {
	case errno != 0 && !q.context.device.dead && !p.gone:
		return errno
	case q.users > 0:
		return syscall.EBUSY
	}
	if ch := q.channel; ch != nil {
		ch.queue = slices.DeleteFunc(ch.queue, func(o *compQueue) bool { return o == q })
		ch.users--
	}
	q.context.forget(&q.async)
	f.settle(&q.taken)
	f.settle(&q.async)
	q.context.users--
	delete(p.cqs, handle)
	return 0
}

// push adds a completion, which shows at once, or late where the device is to be so.
// Preconditions: f.mu is locked.
func (q *compQueue) push(e entry) {
	d := q.context.device
	f := d.fabric
	now := f.bus.Now()
	at := now
	if d.late > 0 {
		at += e.qp.source.Between(0, d.late)
	}
	if at = max(at, q.last); at <= now {
		q.show(e)
		return
	}
	q.last = at
	e.qp.after(at-now, "completion shows", func() { q.show(e) })
}

func (q *compQueue) show(e entry) {
	if q.overrun || len(q.entries) >= q.depth {
		if !q.overrun {
			q.overrun = true
			q.context.post(ibv.AsyncEvent{Type: ibv.IBV_EVENT_CQ_ERR, Element: q.handle}, &q.async)
		}
		return
	}
	q.entries = append(q.entries, e)
	if q.armed == armedNext || q.armed == armedSolicited && e.solicited {
		q.notify()
	}
}

// notify raises the event that the queue was armed for.
func (q *compQueue) notify() {
	q.armed = armedNot
	ch := q.channel
	ch.queue = append(ch.queue, q)
	for _, w := range ch.waiters {
		signal(w.woken)
	}
}

// Poll takes completions, and gives the room of their requests back.
func (q *compQueue) Poll(wc []ibv.WC) int32 {
	f := q.context.device.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.context.process.gone || q.context.device.refused("poll_cq") != 0 && !q.context.device.dead {
		return -1
	}
	n := min(len(wc), len(q.entries))
	for i := range n {
		e := &q.entries[i]
		wc[i] = e.WC
		if e.receive {
			e.qp.received = max(e.qp.received, e.posted)
		} else {
			e.qp.reclaimed = max(e.qp.reclaimed, e.posted)
		}
	}
	q.entries = q.entries[n:]
	return int32(n)
}

// ReqNotify arms the queue. As with mlx5, one that holds what is asked for raises the event at once.
func (q *compQueue) ReqNotify(solicitedOnly bool) syscall.Errno {
	f := q.context.device.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if errno := q.context.process.refused(q.context.device, "req_notify_cq"); errno != 0 {
		return errno
	}
	if q.channel == nil {
		return syscall.EINVAL
	}
	if !solicitedOnly {
		q.armed = armedNext
	} else if q.armed == armedNot {
		q.armed = armedSolicited
	}
	if slices.ContainsFunc(q.entries, func(e entry) bool { return q.armed == armedNext || e.solicited }) {
		q.notify()
	}
	return 0
}

// purge takes out what a queue pair left, as drivers do when it is reset or destroyed.
func (q *compQueue) purge(of *queuePair) {
	q.entries = slices.DeleteFunc(q.entries, func(e entry) bool { return e.qp == of })
}

// spoil fills what the standard does not define in a completion in error.
func spoil(wc *ibv.WC, r *rand.Rand) {
	junk := r.Uint64()
	wc.Opcode, wc.ByteLen, wc.Imm = uint32(junk)|1<<31, uint32(junk>>32)|1, uint32(junk>>16)
	wc.WCFlags, wc.VendorErr = uint32(junk>>24), 0x99
}

// A waiter waits for channels of a process.
type waiter struct {
	process *Process
	woken   chan struct{} // has an element when it is to look
	kicked  bool          // Wake was called; guarded by the fabric's mu
}

func (p *Process) NewWaiter() (ibv.Waiter, error) {
	return &waiter{process: p, woken: make(chan struct{}, 1)}, nil
}

// Again never lets a thread look on when nothing came: looking does not make virtual time pass.
func (w *waiter) Again(found bool) bool { return found }

func (w *waiter) Wait(list []*ibv.CompChannel, timeout time.Duration) {
	f := w.process.fabric
	if !w.begin(list) {
		if timeout >= 0 {
			defer w.process.source.After(timeout, "waited long enough", func() { signal(w.woken) }).Stop()
		}
		<-w.woken
		w.process.gate.Wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.kicked = false
	for _, ch := range list {
		c := w.process.channels[ch.Handle()]
		c.waiters = slices.DeleteFunc(c.waiters, func(o *waiter) bool { return o == w })
	}
	select {
	case <-w.woken:
	default:
	}
}

// begin has the channels wake the waiter, and reports whether there is a reason already.
func (w *waiter) begin(list []*ibv.CompChannel) (ready bool) {
	f := w.process.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	ready = w.kicked
	for _, ch := range list {
		c := w.process.channels[ch.Handle()]
		ready = ready || len(c.queue) > 0
		c.waiters = append(c.waiters, w)
	}
	return ready
}

func (w *waiter) Wake() {
	f := w.process.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	w.kicked = true
	signal(w.woken)
}

func (w *waiter) FD() int      { return -1 }
func (w *waiter) Close() error { return nil }
