package copier

import (
	"fmt"
	"sync/atomic"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Most is the number of slots for outstanding tasks. Copy and Change begin a task only while two slots are free.
const Most = 256

// mostBytes is how many bytes one READ copies at most.
const mostBytes = 1 << 30

// Task is the number of a task, from 1. Tasks are done in their order.
type Task uint64

// task is what is to be done.
type task struct {
	to, from         *Region // of a change: its word is in to, and from is nil
	toAddr, fromAddr uintptr
	size             uint64 // of a copy
	set              bool   // a change sets the word to value, instead of adding it
	value            uint64
	tried            bool           // a change that may have been written
	becomes          uint64         // the value that was written, if tried
	into             *atomic.Uint64 // of a load: where the word's value goes; else nil
	dropped          bool           // its memory is not registered any more
}

// queue is a ring of tasks.
type queue struct {
	tasks  [Most]task
	begun  Task // the last task
	done   Task // the last task that is done, or has failed
	copied uint64
	failed []failure // in order
}

// failure is tasks that have failed, one behind the other.
type failure struct {
	first, last Task
	err         error
}

// task returns a task that is not done.
func (q *queue) task(n Task) *task { return &q.tasks[n%Most] }

// fail ends all tasks up to one with an error.
func (q *queue) fail(last Task, err error) {
	if last > q.done {
		q.failed = append(q.failed, failure{q.done + 1, last, err})
		q.done = last
	}
}

// step is what the oldest task does next.
//
//	idle ──► copying ──► showing ──► idle          a copy
//	idle ──► asking ──► writing ──► showing ──► idle   a change
//	idle ──► asking ──► idle                           a load
//
// If a device fails, the next one does the task again. A change then begins with asking, because the word may have its new value.
type step uint8

const (
	idle    step = 0
	copying step = 1 // bytes are copied
	asking  step = 2 // the word is read
	writing step = 3 // its new value is written
	showing step = 4 // a READ of what was written comes behind the writes
)

// Place is memory in a region.
type Place struct {
	Region *Region
	Addr   uintptr
}

// Change is a change of a 64-bit word, whose address is a multiple of 8: it gets the value, or the value is added to it.
type Change struct {
	Word  Place
	Value uint64
	Set   bool
}

// Copy begins to copy size bytes. then is a change after it, or nil. It returns the number of the last task, or 0 if the tasks cannot
// begin now: the caller then polls and tries again.
func (c *Copier) Copy(to, from Place, size uint64, then *Change) (Task, error) {
	if !to.covers(size) || !from.covers(size) {
		return 0, fmt.Errorf("%w: a copy of %d bytes from %#x to %#x is outside the registered memory", fault.ErrUsage, size, from.Addr, to.Addr)
	}
	first := task{to: to.Region, toAddr: to.Addr, from: from.Region, fromAddr: from.Addr, size: size}
	if then == nil {
		return c.begin(&first, nil)
	}
	second, err := then.task()
	if err != nil {
		return 0, err
	}
	return c.begin(&first, &second)
}

// Change begins to change a word. It returns 0 if the change cannot begin now: the caller then polls and tries again.
func (c *Copier) Change(h Change) (Task, error) {
	t, err := h.task()
	if err != nil {
		return 0, err
	}
	return c.begin(&t, nil)
}

// Load begins to read a 64-bit word, whose address is a multiple of 8. Its value is stored in into before the task is done. It returns 0
// if the load cannot begin now: the caller then polls and tries again.
func (c *Copier) Load(word Place, into *atomic.Uint64) (Task, error) {
	t, err := (&Change{Word: word}).task()
	if err != nil {
		return 0, err
	}
	t.into = into
	return c.begin(&t, nil)
}

// covers reports whether there are n bytes of the region at the place.
func (p Place) covers(n uint64) bool { return p.Region.covers(p.Addr, n) }

// task returns the task of a change.
func (h *Change) task() (task, error) {
	if h.Word.Addr%8 != 0 || !h.Word.covers(8) {
		return task{}, fmt.Errorf("%w: the word at %#x is not aligned or outside the registered memory", fault.ErrUsage, h.Word.Addr)
	}
	return task{to: h.Word.Region, toAddr: h.Word.Addr, value: h.Value, set: h.Set}, nil
}

// begin adds one task or two.
func (c *Copier) begin(first, second *task) (Task, error) {
	if !c.mu.TryLock() {
		return 0, nil
	}
	defer c.mu.Unlock()
	q := &c.queue
	switch {
	case c.closed:
		return 0, errClosed
	case q.begun-q.done > Most-2:
		return 0, nil
	}
	for _, t := range [...]*task{first, second} {
		if t != nil && (t.to.closed || t.from != nil && t.from.closed) {
			return 0, errUnregistered
		}
	}
	for _, t := range [...]*task{first, second} {
		if t != nil {
			q.begun++
			*q.task(q.begun) = *t
		}
	}
	c.advance()
	return q.begun, nil
}

// Done reports whether a task is done, and why it failed if it has: no device could do it, or its memory is not registered any more. It does
// not poll.
func (c *Copier) Done(t Task) (bool, error) {
	if !c.mu.TryLock() {
		return false, nil
	}
	defer c.mu.Unlock()
	switch {
	case t <= c.queue.done:
		return true, c.queue.errorOf(t)
	case c.closed:
		return true, errClosed
	}
	return false, nil
}

// errorOf returns why a task has failed, or nil.
func (q *queue) errorOf(t Task) error {
	for i := range q.failed {
		if f := &q.failed[i]; t >= f.first && t <= f.last {
			return f.err
		}
	}
	return nil
}

// Poll moves the tasks on. It reports whether something moved. It does nothing while another goroutine is in it.
func (c *Copier) Poll() (moved bool) {
	if !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	before, at := c.queue.done, c.step
	if c.reading {
		c.devices[c.current].loop.Poll()
	}
	c.checkOutage()
	c.advance()
	return c.queue.done != before || c.step != at
}

// advance begins the next READ, if there is one.
//
// Preconditions: c.mu is locked.
func (c *Copier) advance() {
	for q := &c.queue; !c.reading && !c.closed && q.done < q.begun; {
		t := q.task(q.done + 1)
		if t.dropped {
			q.fail(q.done+1, errUnregistered)
			continue
		}
		if c.outage.lasts() {
			return
		}
		if c.step == idle {
			c.step, q.copied = asking, 0
			if t.from != nil {
				c.step = copying
			}
		}
		if c.step == copying && q.copied == t.size {
			c.step = showing
			if t.size == 0 || t.to.memory.Kind == lane.HostMemory { // the completion of a READ says that host memory has the bytes
				c.finish()
				continue
			}
		}
		c.reading = true
		if err := c.read(t); err != nil {
			c.Copied(0, err)
		}
	}
}

// read posts the READ of the task's step.
func (c *Copier) read(t *task) error {
	d := c.devices[c.current]
	local, remote := t.to.held[c.current].Keys()
	word := func(i int) uintptr { return ibv.AddrOf(&d.words[i]) }
	switch c.step {
	case copying:
		n := min(t.size-c.queue.copied, mostBytes, uint64(d.port.Attr().MaxMsgSz))
		at := uintptr(c.queue.copied)
		_, source := t.from.held[c.current].Keys()
		return d.loop.Copy(c, uint32(n), t.toAddr+at, local, t.fromAddr+at, source, int(n))
	case asking:
		return d.loop.Copy(c, 0, word(before), d.mr.LKey(), t.toAddr, remote, 8)
	case writing:
		return d.loop.Copy(c, 0, t.toAddr, local, word(after), d.mr.RKey(), 8)
	}
	last, n := t.toAddr, 8
	if t.from != nil {
		last, n = t.toAddr+uintptr(t.size)-1, 1
	}
	return d.loop.Copy(c, 0, word(visible), d.mr.LKey(), last, remote, n)
}

// Copied handles the end of a READ, of n bytes if it was part of a copy. The caller of [verbs.Loopback] has locked c.mu.
func (c *Copier) Copied(n uint32, err error) {
	c.reading = false
	if err != nil {
		c.next(err)
		return
	}
	c.works()
	d, t := c.devices[c.current], c.queue.task(c.queue.done+1)
	switch c.step {
	case copying:
		c.queue.copied += uint64(n)
	case asking:
		if t.into != nil {
			t.into.Store(d.words[before])
			c.finish()
			return
		}
		if t.tried && d.words[before] == t.becomes { // written before the other device failed
			c.step = showing
			return
		}
		d.words[after] = t.value
		if !t.set {
			d.words[after] += d.words[before]
		}
		t.tried, t.becomes = true, d.words[after]
		c.step = writing
	case writing:
		c.step = showing
	case showing:
		c.finish()
	}
}

// finish ends the oldest task.
func (c *Copier) finish() {
	c.step = idle
	c.queue.done++
}
