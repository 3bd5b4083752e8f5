package ibv

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"ncclmesh/guard"
)

// An Event is an asynchronous event of a device. Of CQ, QP and Port, what the type speaks of is set.
type Event struct {
	Type uint32 // IBV_EVENT_PORT_ERR and so on
	Name string // the library's text
	Port uint8
	QPN  uint32
	QP   *QP // nil also for a queue pair whose Close has begun
	CQ   *CQ
}

func (e Event) String() string {
	s := fmt.Sprintf("%s (%s)", e.Name, nameOf(eventNames, "IBV_EVENT", e.Type))
	switch {
	case e.Port != 0:
		s += fmt.Sprintf(" on port %d", e.Port)
	case e.QPN != 0:
		s += fmt.Sprintf(" on queue pair %#x", e.QPN)
	}
	return s
}

// Events calls f with every asynchronous event of the device, one after the other, in a goroutine that waits in Go's
// poller. An event is acknowledged when f returns; until then the queue pair or completion queue it speaks of cannot be
// destroyed, so f must close neither, nor call stop, nor close the context.
//
// Stop ends it and waits for f to return; closing the context does the same. It ends by itself when the device is gone,
// after IBV_EVENT_DEVICE_FATAL, and when f panics, which caught is told of once the event is acknowledged. One watcher at
// a time.
func (c *Context) Events(f func(Event), caught func(*guard.Panic)) (stop func(), err error) {
	if err := c.life.check(); err != nil {
		return nil, err
	}
	c.eventsMu.Lock()
	defer c.eventsMu.Unlock()
	if c.stopEvents != nil {
		return nil, newError("get_async_event", c.device.info.Name, 0, syscall.EBUSY, "the events of this context are already watched")
	}
	source, err := c.lib.driver.Events(c.info.Handle)
	if err != nil {
		return nil, fmt.Errorf("ibv: cannot wait for the events of %s: %w", c.device.info.Name, err)
	}
	c.eventsFD = source.FD()
	done := make(chan struct{})
	go func() {
		defer close(done)
		guard.Run(func() {
			for c.nextEvent(source, f) {
			}
		}, caught)
	}()
	var stopping atomic.Bool
	over := make(chan struct{})
	stop = func() {
		if stopping.Swap(true) {
			<-over // a sync.Once would wait as for a mutex, and hold up virtual time
			return
		}
		defer close(over)
		_ = source.Close() // wakes the goroutine
		<-done
		c.eventsMu.Lock()
		c.stopEvents = nil
		c.eventsMu.Unlock()
	}
	c.stopEvents = stop
	return stop, nil
}

// nextEvent waits for one event and hands it to f. It returns false when no more can come.
func (c *Context) nextEvent(source EventSource, f func(Event)) bool {
	var e AsyncEvent
	if !source.Next(&e) {
		return false
	}
	defer c.lib.driver.AckAsyncEvent(&e)
	f(c.event(&e))
	return true
}

// ofQP reports whether an event speaks of a queue pair.
func ofQP(event uint32) bool {
	switch event {
	case IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED,
		IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_LAST_WQE_REACHED:
		return true
	}
	return false
}

func (c *Context) event(e *AsyncEvent) Event {
	out := Event{Type: e.Type, Name: c.lib.driver.EventText(e.Type)}
	if out.Name == "" {
		out.Name = nameOf(eventNames, "IBV_EVENT", e.Type)
	}
	switch e.Type {
	case IBV_EVENT_CQ_ERR:
		if q, ok := c.cqs.Load(e.Element); ok {
			out.CQ = q.(*CQ)
		}
	case IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
		IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE:
		out.Port = uint8(e.Element)
	}
	if ofQP(e.Type) {
		out.QPN = e.QPN
		if q, ok := c.qps.Load(e.Element); ok {
			out.QP = q.(*QP)
		}
	}
	return out
}
