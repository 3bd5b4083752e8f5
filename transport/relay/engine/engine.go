package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/crew"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/turn"
)

// maxJoints is how many circuits there can be at a time; who admits them has a lower
// limit.
const maxJoints = 512

// Config is what the engine goes by.
type Config struct {
	Log    *slog.Logger
	Clock  clock.Clock  // makes the timers
	Memory int64        // of all rings
	Counts *stats.Relay // where to count bytes; nil: where only this package looks
}

// Engine carries circuits for others. Its methods may be called from any goroutine.
type Engine struct {
	cfg    Config
	slots  [maxJoints]atomic.Pointer[joint]
	queues atomic.Pointer[[]*queue] // of all devices; only grows

	making  turn.Turn // held while something of these is made or destroyed; taken before mu
	devices []*device
	waiter  ibv.Waiter // of the thread; nil while there is none

	mu      sync.Mutex
	taken   [maxJoints]bool // slots
	used    int64           // bytes of rings
	over    chan struct{}
	closing bool
	broken  error

	asleep atomic.Bool // the thread waits, or is about to
	leave  atomic.Bool // the thread ends once none is left

	lowerers *crew.Crew    // stop and destroy what circuits have
	freed    chan struct{} // holds a token when a circuit is down and the engine closes
	closed   chan struct{} // closed when Close returns
	rest     func()        // closes it, once

	// Carried so far.
	Bytes     *stats.Counter
	Frames    stats.Counter
	Processor stats.Counter // nanoseconds of the thread
}

var _ relay.Maker = (*Engine)(nil)

// New makes an engine. It has no thread before the first circuit.
func New(c Config) *Engine {
	if c.Counts == nil {
		c.Counts = new(stats.Relay)
	}
	e := &Engine{cfg: c, Bytes: &c.Counts.Device, freed: make(chan struct{}, 1), closed: make(chan struct{})}
	e.rest = sync.OnceFunc(func() { close(e.closed) })
	e.lowerers = crew.New(lowerers, c.Clock, e.closed)
	e.queues.Store(&[]*queue{})
	return e
}

// Begin makes both halves of a circuit here.
func (e *Engine) Begin(ask *handshake.Carry, j relay.Joining) (relay.Joint, error) {
	in, ok := j.In.Port.(port)
	if !ok {
		return nil, fmt.Errorf("%w: %v is no port for RDMA", fault.ErrInternal, j.In.Port.Now())
	}
	if err := e.run(in.Context().Library()); err != nil {
		return nil, err
	}
	return newJoint(e, ask, j)
}

// run starts the thread, once. All devices are of one library.
func (e *Engine) run(lib *ibv.Library) (err error) {
	e.making.Lock()
	defer e.making.Unlock()
	if runs, err := e.runs(); runs || err != nil {
		return err
	}
	forkfd.Do(func() {
		if e.waiter, err = lib.NewWaiter(); err == nil {
			mark(e.waiter.FD())
		}
	})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	e.mu.Lock()
	e.over = over
	e.mu.Unlock()
	go guard.Run(func() {
		defer close(over)
		runtime.LockOSThread() // and the thread ends with it
		t := &thread{engine: e}
		if err := t.begin(); err != nil {
			e.fail(err)
			return
		}
		defer t.end()
		t.loop()
	}, func(g *guard.Panic) {
		fault.Panicked(e.cfg.Log, "the relay's thread", g)
		e.fail(g)
	})
	return nil
}

// runs reports whether the thread was started; the error says why it may not be.
func (e *Engine) runs() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false, errors.New("this process ends")
	}
	return e.over != nil, e.broken
}

// fail ends every circuit, over an error of the thread's. What they have is lost.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	e.broken = fmt.Errorf("%w: the relay's thread has ended: %w", fault.ErrInternal, err)
	e.mu.Unlock()
	for i := range e.slots {
		if j := e.slots[i].Load(); j != nil {
			j.tellEnded(e.broken)
		}
	}
}

// wake has the thread look for what it has to do.
func (e *Engine) wake() {
	if e.asleep.Load() {
		e.waiter.Wake()
	}
}

// mark makes a forked child close a descriptor, where there is one.
func mark(fd int) {
	if fd >= 0 {
		forkfd.Mark(fd)
	}
}

// unmark ends that, before the descriptor is closed.
func unmark(fd int) {
	if fd >= 0 {
		forkfd.Clear(fd)
	}
}

// take finds a slot for a joint, which is put there once it is made.
func (e *Engine) take() (slot int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.taken {
		if !e.taken[i] {
			e.taken[i] = true
			return i, nil
		}
	}
	return -1, fmt.Errorf("%d circuits are already relayed", maxJoints)
}

// free gives a slot back, and memory of a ring.
func (e *Engine) free(slot, ring int) {
	e.mu.Lock()
	if slot >= 0 {
		e.slots[slot].Store(nil)
		e.taken[slot] = false
	}
	e.used -= int64(ring)
	e.mu.Unlock()
	if e.leave.Load() { // it may have been the last
		e.wake()
		select {
		case e.freed <- struct{}{}:
		default:
		}
	}
}

// lend takes memory for a ring whose frames may be so long: a mebibyte, or less as the memory
// fills; most, where it is not 0, is as much as the hops before have.
func (e *Engine) lend(most uint32, longest uint32) (size int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	size = 1 << 20
	free := e.cfg.Memory - e.used
	for ; size >= 64<<10; size /= 2 {
		ring := hop.RingOf(size)
		if (most == 0 || uint32(ring) <= most) && uint32(ring/8) <= longest && int64(ring) <= free/8 {
			break
		}
	}
	if size < 64<<10 {
		size = 64 << 10
	}
	ring := hop.RingOf(size)
	switch {
	case most > 0 && uint32(ring) > most, uint32(ring/8) > longest:
		return 0, fmt.Errorf("a ring needs %d bytes at least; the hop before offers %d, and the ports move %d at a time", ring, most, longest)
	case int64(ring) > free:
		return 0, fmt.Errorf("circuits already use %d bytes of memory, of %d (NCCL_MESH_RELAY_MEMORY)", e.used, e.cfg.Memory)
	}
	e.used += int64(ring)
	return ring, nil
}

// Circuits is how many there are.
func (e *Engine) Circuits() (n int) {
	for i := range e.slots {
		if e.slots[i].Load() != nil {
			n++
		}
	}
	return n
}

// closeTime is how long no circuit may come down before Close gives up.
const closeTime = 10 * time.Second

// Close ends all circuits and gives everything back. It waits for as long as circuits come down.
func (e *Engine) Close() error {
	defer e.rest()
	over := e.close()
	if over == nil {
		return nil
	}
	for i := range e.slots {
		if j := e.slots[i].Load(); j != nil {
			j.Drop(errors.New("this process ends"))
		}
	}
	e.leave.Store(true)
	e.wake()
	if !e.await(over) {
		return fmt.Errorf("%w: %d circuits did not come down", fault.ErrInternal, e.Circuits())
	}
	e.making.Lock()
	defer e.making.Unlock()
	var errs []error
	for _, d := range e.devices {
		errs = append(errs, d.close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	e.devices = nil
	e.queues.Store(&[]*queue{})
	if w := e.waiter; w != nil {
		forkfd.Do(func() {
			unmark(w.FD())
			_ = w.Close()
		})
		e.waiter = nil
	}
	return nil
}

// await waits until all circuits are down and the thread has ended, and reports whether they are. It gives up when no circuit
// has come down for a while.
func (e *Engine) await(over <-chan struct{}) bool {
	late := e.cfg.Clock.NewTimer(closeTime)
	defer late.Stop()
	for over != nil || e.Circuits() > 0 {
		select {
		case <-over:
			over = nil
		case <-e.freed:
			late.Reset(closeTime)
		case <-late.C:
			return false
		}
	}
	return true
}

// close has nothing more made, and returns what is closed when the thread has ended; nil where there is none.
func (e *Engine) close() <-chan struct{} {
	e.making.Lock() // what is being made is there after this
	defer e.making.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
	return e.over
}
