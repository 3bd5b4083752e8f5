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

// maxCircuits is how many circuits there can be at a time. Package relay admits fewer.
const maxJoints = 512

// Config configures a Forwarder.
type Config struct {
	Log    *slog.Logger
	Clock  clock.Clock  // makes the timers
	Memory int64        // limit of all rings, in bytes
	Counts *stats.Relay // counters of bytes; nil: only this package's fields count
}

// Forwarder forwards circuits over RDMA for other nodes. Its methods may be called from any goroutine.
type Engine struct {
	cfg    Config
	slots  [maxJoints]atomic.Pointer[joint]
	queues atomic.Pointer[[]*queue] // of all devices; only grows

	making  turn.Turn // held while an object of this group is made or destroyed; taken before mu
	devices []*device
	waiter  ibv.Waiter // used by the thread; nil before it starts

	mu      sync.Mutex
	taken   [maxJoints]bool // slots in use
	used    int64           // bytes of rings in use
	over    chan struct{}
	closing bool
	broken  error

	asleep atomic.Bool // the thread waits, or is about to wait
	leave  atomic.Bool // the thread ends once there is no circuit

	lowerers *crew.Crew    // threads that stop and destroy verbs objects
	freed    chan struct{} // holds a token after a circuit was torn down while the Forwarder closes
	closed   chan struct{} // closed when Close returns
	rest     func()        // closes the channel closed, once

	// Counters of what was forwarded.
	Bytes     *stats.Counter
	Frames    stats.Counter
	Processor stats.Counter // processor time of the thread in nanoseconds
}

var _ relay.Maker = (*Engine)(nil)

// New makes a Forwarder. Its thread starts with the first circuit.
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

// Begin makes the endpoints of both hops of a circuit.
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

// run starts the thread, if it is not running. All devices must belong to one library.
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
		runtime.LockOSThread() // so that the thread ends with this goroutine
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

// runs reports whether the thread was started. The error tells why it must not be started.
func (e *Engine) runs() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false, errors.New("this process ends")
	}
	return e.over != nil, e.broken
}

// fail ends every circuit because of an error of the thread. Their resources are not released.
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

// wake makes the thread look for work.
func (e *Engine) wake() {
	if e.asleep.Load() {
		e.waiter.Wake()
	}
}

// mark makes a forked child close a descriptor. It ignores negative ones.
func mark(fd int) {
	if fd >= 0 {
		forkfd.Mark(fd)
	}
}

// unmark reverts mark, before the descriptor is closed.
func unmark(fd int) {
	if fd >= 0 {
		forkfd.Clear(fd)
	}
}

// reserveSlot reserves a slot for a circuit. The caller stores the circuit there once it is made.
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

// release releases a slot, and the memory of a ring of that many bytes.
func (e *Engine) free(slot, ring int) {
	e.mu.Lock()
	if slot >= 0 {
		e.slots[slot].Store(nil)
		e.taken[slot] = false
	}
	e.used -= int64(ring)
	e.mu.Unlock()
	if e.leave.Load() { // this may have been the last circuit
		e.wake()
		select {
		case e.freed <- struct{}{}:
		default:
		}
	}
}

// allocRing reserves memory for a ring, and returns its size: for up to a mebibyte of payloads, less as the memory
// fills up. longest is the longest message that the ports can transfer. most is the smallest ring of the hops before;
// 0: there are none.
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

// Circuits returns the number of circuits.
func (e *Engine) Circuits() (n int) {
	for i := range e.slots {
		if e.slots[i].Load() != nil {
			n++
		}
	}
	return n
}

// closeTime is how long Close waits without any circuit being torn down before it gives up.
const closeTime = 10 * time.Second

// Close ends all circuits and releases all resources. It waits as long as circuits are still being torn down.
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

// await waits until all circuits are torn down and the thread has ended, and reports whether they are. It gives up when
// no circuit was torn down for closeTime.
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

// close stops the making of circuits, and returns a channel that is closed when the thread has ended; nil if there is
// no thread.
func (e *Engine) close() <-chan struct{} {
	e.making.Lock() // circuits in the making are stored when this returns
	defer e.making.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
	return e.over
}
