package conformance

import (
	"errors"
	"sync/atomic"
	"syscall"

	"ncclmesh/guard"
	"ncclmesh/ibv"
)

// taken takes the channel's events, and returns their number.
func (e *end) taken() int {
	e.w.Helper()
	n, err := e.ch.Drain()
	e.w.must(err)
	return n
}

// wake waits for an event of the channel with a waiter.
func (e *end) wake() {
	e.w.Helper()
	waiter, err := e.w.lib.NewWaiter()
	e.w.must(err)
	waiter.Wait([]*ibv.CompChannel{e.ch}, -1)
	e.w.must(waiter.Close())
	if n := e.taken(); n != 1 {
		e.w.Fatalf("%d events, want 1", n)
	}
}

// eventRows are about completion channels and asynchronous events.
var eventRows = []row{
	on("an armed queue tells of the next completion, once", func(a, b *end) {
		b.postRecv(1, 0, 8)
		b.postRecv(2, 0, 8)
		b.w.must(b.cq.ReqNotify(false))
		if n := b.taken(); n != 0 {
			b.w.Fatalf("%d events of an empty queue", n)
		}
		a.post(1, opSend, 0, 8, 0)
		b.wake()
		a.want(1, ok)
		a.post(2, opSend, 0, 8, 0)
		a.want(2, ok)
		b.want(1, ok)
		b.want(2, ok)
		if n := b.taken(); n != 0 {
			b.w.Fatalf("%d events that nobody asked for", n)
		}
	}),
	on("a queue that holds completions tells at once", func(a, b *end) {
		a.post(1, opWrite, 0, 8, 0)
		a.w.await("the event", func() bool { a.w.must(a.cq.ReqNotify(false)); return a.taken() == 1 })
		a.w.must(a.cq.ReqNotify(false))
		if n := a.taken(); n != 1 {
			a.w.Errorf("armed again: %d events, want 1", n)
		}
		a.want(1, ok)
		a.w.must(a.cq.ReqNotify(false))
		if n := a.taken(); n != 0 {
			a.w.Errorf("of an empty queue: %d events", n)
		}
	}),
	on("asked for solicited completions, a queue tells of those alone", func(a, b *end) {
		for i := range 2 {
			b.postRecv(i, 0, 8)
		}
		b.w.must(b.cq.ReqNotify(true))
		a.post(1, opSend, 0, 8, 0)
		a.want(1, ok)
		b.want(0, ok)
		if n := b.taken(); n != 0 {
			b.w.Fatalf("%d events of what was not solicited", n)
		}
		a.posted(a.send(2, opSend, 0, 8, 0, signaled|ibv.IBV_SEND_SOLICITED))
		b.wake()
		a.want(2, ok)
		b.want(1, ok)
	}),
	on("asked for solicited completions, a queue tells at once of one that it holds, and not of others", func(a, b *end) {
		for i := range 2 {
			b.postRecv(i, 0, 8)
		}
		b.w.must(b.cq.ReqNotify(false))
		a.post(1, opSend, 0, 8, 0)
		b.wake()
		b.w.must(b.cq.ReqNotify(true))
		if n := b.taken(); n != 0 {
			b.w.Errorf("%d events of what was not solicited", n)
		}
		a.posted(a.send(2, opSend, 0, 8, 0, signaled|ibv.IBV_SEND_SOLICITED))
		b.wake()
		b.w.must(b.cq.ReqNotify(true))
		if n := b.taken(); n != 1 {
			b.w.Errorf("%d events of a queue that holds a solicited completion, want 1", n)
		}
		for i := range 2 {
			a.want(i+1, ok)
			b.want(i, ok)
		}
	}),
	on("a completion in error is solicited", func(a, b *end) {
		b.postRecv(1, 0, 8)
		b.w.must(b.cq.ReqNotify(true), b.to(failed))
		b.wake()
		b.want(1, flushed)
	}),
	on("asking for solicited completions does not weaken what was asked before", func(a, b *end) {
		b.postRecv(1, 0, 8)
		b.w.must(b.cq.ReqNotify(false), b.cq.ReqNotify(true))
		a.post(1, opSend, 0, 8, 0)
		b.wake()
		a.want(1, ok)
		b.want(1, ok)
	}),
	{name: "a queue without a channel cannot be armed", run: func(w *world) {
		e := newEnd(w, "rdma0", wish{})
		cq, err := e.ctx.CreateCQ(4, nil)
		w.must(err)
		if err := cq.ReqNotify(false); !errors.Is(err, syscall.EINVAL) {
			w.Errorf("%v, want EINVAL", err)
		}
		w.must(cq.Close())
		e.close()
	}},
	on("events that nobody took do not hold up the end", func(a, b *end) {
		b.postRecv(1, 0, 8)
		b.w.must(b.cq.ReqNotify(false))
		a.post(1, opSend, 0, 8, 0)
		a.want(1, ok)
	}),
	on("a waiter waits for either of two channels", func(a, b *end) {
		waiter, err := a.w.lib.NewWaiter()
		a.w.must(err, a.cq.ReqNotify(false), b.cq.ReqNotify(false))
		b.postRecv(1, 0, 8)
		a.posted(a.send(1, opSend, 0, 8, 0, 0))
		waiter.Wait([]*ibv.CompChannel{a.ch, b.ch}, -1)
		if x, y := a.taken(), b.taken(); x != 0 || y != 1 {
			a.w.Errorf("%d and %d events, want 0 and 1", x, y)
		}
		waiter.Wake()
		waiter.Wait([]*ibv.CompChannel{a.ch, b.ch}, -1)
		waiter.Wait([]*ibv.CompChannel{a.ch, b.ch}, 0)
		a.w.must(waiter.Close())
		b.want(1, ok)
	}),
	on("more completions than the queue holds", func(a, b *end) {
		for i := range 6 {
			a.post(i, opWrite, 0, 8, 0)
		}
		if ev := a.event(ibv.IBV_EVENT_CQ_ERR); ev.CQ != a.cq {
			a.w.Errorf("the event is of %v", ev)
		}
		for i := range 4 {
			a.want(i, ok)
		}
		a.none()
	}, wish{cqe: 4}),
	on("a queue pair that breaks by itself says so", func(a, b *end) {
		a.w.faults.breakQP(a.qp.Num())
		if ev := a.event(ibv.IBV_EVENT_QP_FATAL); ev.QP != a.qp {
			a.w.Errorf("the event is of %v", ev)
		}
		isFailed(a)
		b.state(rts)
	}),
	on("a queue pair is not destroyed while its event is handled", func(a, b *end) {
		a.stop()
		var done atomic.Bool
		closed := make(chan bool, 1)
		stop, err := a.ctx.Events(func(ev ibv.Event) {
			if ev.Type != ibv.IBV_EVENT_QP_FATAL {
				return
			}
			begun := make(chan struct{})
			go guard.Run(func() {
				close(begun)
				err := ev.QP.Close()
				closed <- err == nil && done.Load()
			}, nil)
			<-begun
			for range 20 {
				a.w.pause()
			}
			done.Store(true)
		}, nil)
		a.w.must(err)
		a.w.faults.breakQP(a.qp.Num())
		if !<-closed {
			a.w.Error("it was destroyed before, or not at all")
		}
		a.qp, a.stop = nil, stop
	}),
}
