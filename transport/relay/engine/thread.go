package engine

import (
	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/transport/relay/hop"
)

const (
	pollBatch = 32

	accountEvery = 1 << 16 // polls between two readings of the processor time
)

// thread is the thread that serves the circuits. Only its own goroutine uses it.
type thread struct {
	forwarder *Forwarder
	mem       *ibv.Memory
	wc        []ibv.WC
	channels  []*ibv.CompChannel // that it waits on
}

func (t *thread) begin() (err error) {
	if t.mem, err = ibv.Alloc(pollBatch * 64); err != nil {
		return err
	}
	t.wc = ibv.Carve[ibv.WC](t.mem, pollBatch)
	return nil
}

func (t *thread) end() { _ = t.mem.Free() }

// loop serves circuits until the Forwarder is closed.
func (t *thread) loop() {
	for {
		t.spin()
		t.account()
		if t.forwarder.stopping.Load() && t.forwarder.Circuits() == 0 {
			return
		}
		t.sleep()
	}
}

// spin polls as long as the waiter prefers polling to waiting.
func (t *thread) spin() {
	for looks := 0; ; looks++ {
		if looks%accountEvery == 0 {
			t.account()
		}
		if !t.forwarder.waiter.Again(t.poll()) {
			return
		}
	}
}

// poll handles all available completions, and reports whether there were any.
func (t *thread) poll() (some bool) {
	f := t.forwarder
	for _, q := range *f.queues.Load() {
		n, err := q.Poll(t.wc)
		if err != nil {
			panic(err) // the device has failed, or this package has miscounted
		}
		for i := range n {
			t.complete(&t.wc[i])
		}
		some = some || n > 0
	}
	return some
}

// account updates the counter of processor time.
func (t *thread) account() {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) == nil {
		t.forwarder.Processor.Add(uint64(ts.Nano()) - t.forwarder.Processor.Value())
	}
}

// complete passes a completion to its circuit.
func (t *thread) complete(wc *ibv.WC) {
	work, tag, number := hop.WorkOf(wc.WRID)
	c := t.forwarder.slots[tag/2%maxCircuits].Load()
	if c == nil {
		return // of a queue pair that was destroyed
	}
	c.complete(wc, work, int(tag%2), number)
}

// sleep waits for completions, or for wake.
func (t *thread) sleep() {
	f := t.forwarder
	f.asleep.Store(true)
	defer f.asleep.Store(false)
	queues := *f.queues.Load()
	for _, q := range queues {
		if err := q.ReqNotify(false); err != nil {
			panic(err)
		}
	}
	if t.poll() || f.stopping.Load() && f.Circuits() == 0 {
		return
	}
	t.channels = t.channels[:0]
	for i, q := range queues {
		if i == 0 || queues[i-1].dev != q.dev {
			t.channels = append(t.channels, q.dev.ch)
		}
	}
	f.waiter.Wait(t.channels, -1) // the caller polls, and so sees what ended the wait
	for _, ch := range t.channels {
		if _, err := ch.Drain(); err != nil {
			panic(err)
		}
	}
}
