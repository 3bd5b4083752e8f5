package ibv

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// soon is how long a test waits for what should happen at once.
const soon = 2 * time.Minute

func receive(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(soon):
		t.Fatal("no event")
		return Event{}
	}
}

// goroutines fails the test when the watcher's goroutine is still there at its end.
func goroutines(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		buf := make([]byte, 1<<20)
		if s := string(buf[:runtime.Stack(buf, true)]); strings.Contains(s, "(*Context).nextEvent") {
			t.Errorf("the watcher is still running:\n%s", s)
		}
	})
}

func TestEvents(t *testing.T) {
	goroutines(t)
	p := newPair(t)
	s := p.s
	acked := s.call("standin_events_acked")
	events := make(chan Event)
	stop, err := p.ctx.Events(func(e Event) { events <- e }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fd := p.ctx.EventsFD(); fd <= 2 || fd == p.ctx.FDs()[1] {
		t.Errorf("the watcher's descriptor is %d", fd)
	}
	if _, err := p.ctx.Events(func(Event) {}, nil); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second watcher: %v, want EBUSY", err)
	}

	s.call("standin_event", p.ctx.info.Handle, IBV_EVENT_PORT_ERR, 2)
	s.call("standin_event", p.ctx.info.Handle, IBV_EVENT_QP_FATAL, p.qp.info.Handle)
	s.call("standin_event", p.ctx.info.Handle, IBV_EVENT_CQ_ERR, p.cq.info.Handle)
	s.call("standin_event", p.ctx.info.Handle, IBV_EVENT_DEVICE_FATAL, 0)
	for _, want := range []Event{
		{Type: IBV_EVENT_PORT_ERR, Name: "port down", Port: 2},
		{Type: IBV_EVENT_QP_FATAL, Name: "something", QPN: p.qp.Num(), QP: p.qp},
		{Type: IBV_EVENT_CQ_ERR, Name: "something", CQ: p.cq},
		{Type: IBV_EVENT_DEVICE_FATAL, Name: "something"},
	} {
		if got := receive(t, events); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got, want := (Event{Type: IBV_EVENT_PORT_ERR, Name: "port down", Port: 2}).String(), "port down (IBV_EVENT_PORT_ERR) on port 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	stop()
	stop()
	if fd := p.ctx.EventsFD(); fd != -1 {
		t.Errorf("the watcher's descriptor is %d after stop", fd)
	}
	if n := s.call("standin_events_acked") - acked; n != 4 {
		t.Errorf("%d events acknowledged, want 4", n)
	}

	// After stop another watcher may come; closing the context ends that one, unless it has to fail.
	if _, err := p.ctx.Events(func(e Event) { events <- e }, nil); err != nil {
		t.Fatal(err)
	}
	s.call("standin_event", p.ctx.info.Handle, IBV_EVENT_PORT_ACTIVE, 1)
	if got := receive(t, events); got.Type != IBV_EVENT_PORT_ACTIVE || got.Port != 1 {
		t.Errorf("got %+v", got)
	}
	if err := p.ctx.Close(); err == nil || p.ctx.EventsFD() == -1 {
		t.Errorf("Close with children: %v, watcher's descriptor %d", err, p.ctx.EventsFD())
	}
	closeAll(t, p.qp, p.cq, p.mr, p.pd, p.ctx)
}

// An event counts as handled when f has returned, not before.
func TestEventsAreAcknowledgedLast(t *testing.T) {
	goroutines(t)
	p := newPair(t)
	entered, leave := make(chan Event), make(chan struct{})
	stop, err := p.ctx.Events(func(e Event) { entered <- e; <-leave }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p.s.call("standin_event", p.ctx.info.Handle, IBV_EVENT_QP_FATAL, p.qp.info.Handle)
	receive(t, entered)
	if err := p.qp.Close(); !errors.Is(err, syscall.EBUSY) { // the real library waits here
		t.Errorf("destroying a queue pair with an event being handled: %v, want EBUSY", err)
	}
	close(leave)
	stop()
	closeAll(t, p.qp)
}

// slowEvents has no event, and a reader of them that needs its time to end.
type slowEvents struct {
	Driver
	takes  time.Duration
	closed chan struct{}
}

func (d *slowEvents) Events(uintptr) (EventSource, error) { return d, nil }
func (d *slowEvents) FD() int                             { return -1 }
func (d *slowEvents) Close() error                        { close(d.closed); return nil }
func (d *slowEvents) CloseDevice(uintptr) syscall.Errno   { return 0 }
func (d *slowEvents) Next(*AsyncEvent) bool {
	<-d.closed
	time.Sleep(d.takes)
	return false
}

// Several that stop the events wait until they have ended, and virtual time goes on.
func TestStopEventsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowEvents{takes: time.Second, closed: make(chan struct{})}
		c := &Context{lib: Use(d), device: &Device{}}
		if err := c.life.begin(kindContext); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stop, err := c.Events(func(Event) {}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, end := range []func() error{func() error { stop(); return nil }, func() error { stop(); return nil }, c.Close} {
			wg.Go(func() {
				if err := end(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != d.takes {
					t.Errorf("the events were stopped after %v, want %v", took, d.takes)
				}
			})
		}
		wg.Wait()
	})
}
