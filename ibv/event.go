package ibv

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
		return nil, newError("get_async_event", c.device.name, 0, syscall.EBUSY, "the events of this context are already watched")
	}
	file, raw, err := c.pollable()
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		guard.Run(func() {
			for c.nextEvent(raw, f) {
			}
		}, caught)
	}()
	stop = sync.OnceFunc(func() {
		_ = file.Close() // wakes the goroutine
		<-done
		c.eventsMu.Lock()
		c.stopEvents = nil
		c.eventsMu.Unlock()
	})
	c.stopEvents = stop
	return stop, nil
}

// pollable returns a duplicate of the asynchronous-event descriptor that waits in Go's poller, and records its number. Both
// become non-blocking: the flag is of the open file, which they share.
func (c *Context) pollable() (*os.File, syscall.RawConn, error) {
	fail := func(err error) error {
		return fmt.Errorf("ibv: cannot wait for the events of %s: %w", c.device.name, err)
	}
	dup, err := unix.FcntlInt(uintptr(c.c.asyncFD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fail(err)
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		_ = unix.Close(dup)
		return nil, nil, fail(err)
	}
	file := os.NewFile(uintptr(dup), "asynchronous events of "+c.device.name)
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails unless the descriptor is in the poller
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, fail(err)
	}
	c.eventsFD = dup
	return file, raw, nil
}

// nextEvent waits for one event and hands it to f. It returns false when the descriptor has been closed or is broken.
func (c *Context) nextEvent(raw syscall.RawConn, f func(Event)) bool {
	var e asyncEvent
	var errno syscall.Errno
	err := raw.Read(func(uintptr) bool {
		errno = c.lib.getAsyncEvent(c.ptr, &e)
		return errno != syscall.EAGAIN && errno != syscall.EINTR
	})
	if err != nil || errno != 0 {
		return false
	}
	defer c.lib.ackAsyncEvent(&e)
	f(c.event(&e))
	return true
}

func (c *Context) event(e *asyncEvent) Event {
	out := Event{Type: e.eventType, Name: nameOf(eventNames, "IBV_EVENT", e.eventType)}
	if c.lib.fn.eventTypeStr != 0 {
		out.Name = c.lib.eventText(e.eventType)
	}
	switch e.eventType {
	case IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED,
		IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_LAST_WQE_REACHED:
		out.QPN = at[cQP](e.element).qpNum // alive until the event is acknowledged
		if q, ok := c.qps.Load(e.element); ok {
			out.QP = q.(*QP)
		}
	case IBV_EVENT_CQ_ERR:
		if q, ok := c.cqs.Load(e.element); ok {
			out.CQ = q.(*CQ)
		}
	case IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
		IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE:
		out.Port = uint8(e.element)
	}
	return out
}
