package transport

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
)

// lane0 is the queue pair of a connection's first lane.
func lane0(c *conn) *queuePair { return c.lanes[0].carrier.(*queuePair) }

// within fails the test when f does not return.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	await(t, what, func() bool {
		select {
		case <-done:
			return true
		default:
			time.Sleep(100 * time.Microsecond)
			return false
		}
	})
}

// While a connection's mutex is held, as it is over a drain, an event of one of its
// queue pairs is acknowledged, so that the queue pair can be destroyed; the peer is
// told; and the session's messages reach other connections.
func TestNewsNeedsNoMutex(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	s.mu.Lock()
	fault(t, "event", "QP_FATAL", fmt.Sprint(lane0(s.conn).qp.Num()))
	within(t, "the event", func() {
		for s.ended() == nil {
			time.Sleep(time.Millisecond)
		}
	})
	within(t, "the queue pair's end", func() {
		if err := lane0(s.conn).close(); err != nil {
			t.Error(err)
		}
	})
	await(t, "the peer's error", func() bool {
		_, err := r.Irecv(make([]Buffer, 1))
		if err != nil && !errors.Is(err, ErrPeer) {
			t.Fatalf("the peer sees %v, want ErrPeer", err)
		}
		return err != nil
	})
	if err := r.Close(); err != nil { // its last word goes to the connection whose mutex is held
		t.Error(err)
	}
	s2, r2 := connect(t, a, b)
	closeBoth(t, s2, r2)
	s.mu.Unlock()
	if _, err := s.Isend(0, 0, 1, nil); !errors.Is(err, ErrPeer) {
		t.Errorf("isend after the event: %v, want ErrPeer", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Completions show late, the device declares the queue pair broken while it is
// being drained, and so it has to be destroyed: DeregMR returns all the same.
func TestEventInDrain(t *testing.T) {
	leaks(t)
	a, b := newTransport(t, func(o *Options) { o.TimeScale = 0.5 }), newTransport(t, func(o *Options) { o.TimeScale = 0.5 })
	s, r := connect(t, a, b)
	m, _ := memory(t, 4096)
	sg, rg := register(t, s, m), register(t, r, m)
	irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	fault(t, "slow", "time=60s")
	t.Cleanup(func() { fault(t, "clear") })
	isend(t, s, m, 128, 64, 1, sg)
	num := lane0(s.conn).qp.Num()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.DeregMR(sg); err != nil {
			t.Error(err)
		}
	})
	await(t, "the drain", func() bool {
		if s.mu.TryLock() {
			s.mu.Unlock()
			return false
		}
		return true
	})
	fault(t, "event", "QP_FATAL", fmt.Sprint(num))
	within(t, "DeregMR", wg.Wait)
	fault(t, "clear")
	closeBoth(t, s, r)
}

// Events come while connections of many queue pairs end.
func TestEventsAroundClose(t *testing.T) {
	leaks(t)
	many := func(o *Options) { o.QPsPerLane = 16 }
	a, b := newTransport(t, many), newTransport(t, many)
	for range 40 {
		s, r := connect(t, a, b)
		var events, ends sync.WaitGroup
		for _, l := range append(s.lanes[len(s.lanes)-2:], r.lanes[len(r.lanes)-2:]...) {
			event := faultCommand("event", "QP_FATAL", fmt.Sprint(l.carrier.(*queuePair).qp.Num()))
			events.Go(func() { _ = event.Run() }) // it says so when the queue pair is gone
		}
		await(t, "the first event", func() bool { return s.ended() != nil || r.ended() != nil })
		within(t, "the ends", func() {
			ends.Go(func() { _ = s.Close() })
			ends.Go(func() { _ = r.Close() })
			ends.Wait()
		})
		events.Wait()
	}
	within(t, "what lingers", func() {
		for ibv.Live()["queue pairs"] > 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

// between calls f while a poll looks for nothing: news that comes behind it.
type between struct {
	half
	f func()
}

func (b between) waiting() bool { b.f(); return false }

// The last message and the sender's Bye come after a poll and before the verdict
// on its receive: the message is found by the next one.
func TestByeBehindPoll(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	m, _ := memory(t, 4096)
	sg, rg := register(t, s, m), register(t, r, m)
	rq := irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	done(t, "the send", isend(t, s, m, 128, 64, 1, sg))
	own := r.half
	r.half = between{own, func() { r.deliver(&handshake.Bye{Conn: r.id}) }}
	if ok, err := rq.Test(); ok || err != nil {
		t.Errorf("the test that the Bye came into: done %v, %v", ok, err)
	}
	r.half = own
	if ok, err := rq.Test(); !ok || err != nil {
		t.Errorf("the test after it: done %v, %v", ok, err)
	}
	closeBoth(t, s, r)
}
