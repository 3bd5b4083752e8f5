package adapter

import (
	"slices"
	"syscall"

	"ncclmesh/ibv"
)

// A context is a device that a process has open.
type context struct {
	device  *Device
	process *Process
	handle  uintptr
	users   int          // objects made from it
	qps     []*queuePair // in the order of their making

	queue   []asyncEvent
	come    chan struct{} // has an element when there may be an event
	reading bool
	dead    bool // no more events come: the device is gone
}

// An asyncEvent is an event that nobody has read.
type asyncEvent struct {
	ibv.AsyncEvent
	of *acks // of the object that the event speaks of; nil for a port
}

// acks counts the events of an object that were read and not acknowledged.
type acks struct {
	unacked int
	settled chan struct{} // made by who waits for 0, closed at 0
}

func (a *acks) ack(n int) {
	if a.unacked -= n; a.unacked < 0 {
		panic("adapter: more events were acknowledged than read")
	}
	if a.unacked == 0 && a.settled != nil {
		close(a.settled)
		a.settled = nil
	}
}

// settle waits until all events that were read are acknowledged. f.mu is locked, but not while it waits.
func (f *Fabric) settle(a *acks) {
	for a.unacked > 0 {
		if a.settled == nil {
			a.settled = make(chan struct{})
		}
		over := a.settled
		f.mu.Unlock()
		<-over
		f.mu.Lock()
	}
}

// post queues an event for the process.
// Preconditions: f.mu is locked.
func (c *context) post(e ibv.AsyncEvent, of *acks) {
	c.device.fabric.count("event "+eventName(e.Type), 1)
	c.queue = append(c.queue, asyncEvent{e, of})
	signal(c.come)
}

// forget takes back the events of an object that nobody has read.
func (c *context) forget(of *acks) {
	c.queue = slices.DeleteFunc(c.queue, func(e asyncEvent) bool { return e.of == of })
}

// leave ends the events of a context that is closed.
func (c *context) leave() {
	d := c.device
	d.opened = slices.DeleteFunc(d.opened, func(o *context) bool { return o == c })
	c.dead = true
	signal(c.come)
}

// signal puts an element into a channel of one, if it has none.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// A source is the reader of a context's events.
type source struct {
	context *context
	stop    chan struct{}
}

func (p *Process) Events(ctx uintptr) (ibv.EventSource, error) {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	c := p.contexts[ctx]
	if errno := p.refused(c.device, "get_async_event"); errno != 0 {
		return nil, errno
	}
	if c.reading {
		return nil, syscall.EBUSY
	}
	c.reading = true
	return &source{context: c, stop: make(chan struct{})}, nil
}

func (s *source) Next(e *ibv.AsyncEvent) bool {
	c := s.context
	f := c.device.fabric
	for {
		select {
		case <-s.stop: // before any event that is there
			return false
		default:
		}
		f.mu.Lock()
		if len(c.queue) > 0 {
			first := c.queue[0]
			c.queue = c.queue[1:]
			if first.of != nil {
				first.of.unacked++
			}
			f.mu.Unlock()
			*e = first.AsyncEvent
			return true
		}
		dead := c.dead
		f.mu.Unlock()
		if dead {
			return false
		}
		select {
		case <-c.come:
			c.process.gate.Wait()
		case <-s.stop:
			return false
		}
	}
}

func (s *source) FD() int { return -1 }

func (s *source) Close() error {
	f := s.context.device.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	s.context.reading = false
	close(s.stop)
	return nil
}

func (p *Process) AckAsyncEvent(e *ibv.AsyncEvent) {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case e.QPN != 0:
		p.qps[e.Element].events.ack(1)
	case e.Type == ibv.IBV_EVENT_CQ_ERR:
		p.cqs[e.Element].async.ack(1)
	}
}

func eventName(event uint32) string {
	return map[uint32]string{
		ibv.IBV_EVENT_CQ_ERR: "CQ_ERR", ibv.IBV_EVENT_QP_FATAL: "QP_FATAL", ibv.IBV_EVENT_QP_REQ_ERR: "QP_REQ_ERR",
		ibv.IBV_EVENT_QP_ACCESS_ERR: "QP_ACCESS_ERR", ibv.IBV_EVENT_COMM_EST: "COMM_EST", ibv.IBV_EVENT_DEVICE_FATAL: "DEVICE_FATAL",
		ibv.IBV_EVENT_PORT_ACTIVE: "PORT_ACTIVE", ibv.IBV_EVENT_PORT_ERR: "PORT_ERR", ibv.IBV_EVENT_GID_CHANGE: "GID_CHANGE",
	}[event]
}
