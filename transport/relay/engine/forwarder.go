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
	"ncclmesh/transport/fault"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/threads"
	"ncclmesh/transport/turn"
)

// maxCircuits is how many circuits there can be at a time. Package relay admits fewer.
const maxCircuits = 512

// Config configures a Forwarder.
type Config struct {
	Log    *slog.Logger
	Clock  clock.Clock  // makes the timers
	Memory int64        // limit of all rings, in bytes
	Counts *stats.Relay // counters of bytes; nil: only this package's fields count
}

// Forwarder forwards circuits over RDMA for other nodes. Its methods may be called from any goroutine.
type Forwarder struct {
	cfg    Config
	slots  [maxCircuits]atomic.Pointer[circuit]
	queues atomic.Pointer[[]*queue] // of all devices; only grows

	makeTurn turn.Turn // held while an object of this group is made or destroyed; taken before mu
	devices  []*device
	waiter   ibv.Waiter // used by the thread; nil before it starts

	mu      sync.Mutex
	taken   [maxCircuits]bool // slots in use
	used    int64             // bytes of rings in use
	over    chan struct{}
	closing bool
	broken  error

	asleep   atomic.Bool // the thread waits, or is about to wait
	stopping atomic.Bool // the thread ends once there is no circuit

	destroyers   *threads.Pool // threads that stop and destroy verbs objects
	freed        chan struct{} // holds a token after a circuit was torn down while the Forwarder closes
	closed       chan struct{} // closed when Close returns
	signalClosed func()        // closes the channel closed, once

	// Counters of what was forwarded.
	Bytes     *stats.Counter
	Frames    stats.Counter
	Processor stats.Counter // processor time of the thread in nanoseconds
}

var _ relay.Maker = (*Forwarder)(nil)

// New makes a Forwarder. Its thread starts with the first circuit.
func New(c Config) *Forwarder {
	if c.Counts == nil {
		c.Counts = new(stats.Relay)
	}
	f := &Forwarder{cfg: c, Bytes: &c.Counts.Device, freed: make(chan struct{}, 1), closed: make(chan struct{})}
	f.signalClosed = sync.OnceFunc(func() { close(f.closed) })
	f.destroyers = threads.New(destroyers, c.Clock, f.closed)
	f.queues.Store(&[]*queue{})
	return f
}

// Begin makes the endpoints of both hops of a circuit.
func (f *Forwarder) Begin(ask *handshake.CircuitOpen, j relay.HopPair) (relay.Relayed, error) {
	in, ok := j.In.Port.(*verbs.Port)
	if !ok {
		return nil, fmt.Errorf("%w: %v is no port for RDMA", fault.ErrInternal, j.In.Port.Now())
	}
	if err := f.run(in.Context().Library()); err != nil {
		return nil, err
	}
	return newCircuit(f, ask, j)
}

// run starts the thread, if it is not running. All devices must belong to one library.
func (f *Forwarder) run(lib *ibv.Library) (err error) {
	f.makeTurn.Lock()
	defer f.makeTurn.Unlock()
	if runs, err := f.runs(); runs || err != nil {
		return err
	}
	forkfd.Do(func() {
		if f.waiter, err = lib.NewWaiter(); err == nil {
			mark(f.waiter.FD())
		}
	})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	f.mu.Lock()
	f.over = over
	f.mu.Unlock()
	go guard.Run(func() {
		defer close(over)
		runtime.LockOSThread() // so that the thread ends with this goroutine
		t := &thread{forwarder: f}
		if err := t.begin(); err != nil {
			f.fail(err)
			return
		}
		defer t.end()
		t.loop()
	}, func(g *guard.Panic) {
		fault.Panicked(f.cfg.Log, "the relay's thread", g)
		f.fail(g)
	})
	return nil
}

// runs reports whether the thread was started. The error tells why it must not be started.
func (f *Forwarder) runs() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return false, errors.New("this process ends")
	}
	return f.over != nil, f.broken
}

// fail ends every circuit because of an error of the thread. Their resources are not released.
func (f *Forwarder) fail(err error) {
	f.mu.Lock()
	f.broken = fmt.Errorf("%w: the relay's thread has ended: %w", fault.ErrInternal, err)
	f.mu.Unlock()
	for i := range f.slots {
		if c := f.slots[i].Load(); c != nil {
			c.reportEnd(f.broken)
		}
	}
}

// wake makes the thread look for work.
func (f *Forwarder) wake() {
	if f.asleep.Load() {
		f.waiter.Wake()
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
func (f *Forwarder) reserveSlot() (slot int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.taken {
		if !f.taken[i] {
			f.taken[i] = true
			return i, nil
		}
	}
	return -1, fmt.Errorf("%d circuits are already relayed", maxCircuits)
}

// release releases a slot, and the memory of a ring of that many bytes.
func (f *Forwarder) release(slot, ring int) {
	f.mu.Lock()
	if slot >= 0 {
		f.slots[slot].Store(nil)
		f.taken[slot] = false
	}
	f.used -= int64(ring)
	f.mu.Unlock()
	if f.stopping.Load() { // this may have been the last circuit
		f.wake()
		select {
		case f.freed <- struct{}{}:
		default:
		}
	}
}

// allocRing reserves memory for a ring, and returns its size: for up to a mebibyte of payloads, less as the memory
// fills up. longest is the longest message that the ports can transfer. most is the smallest ring of the hops before;
// 0: there are none.
func (f *Forwarder) allocRing(most uint32, longest uint32) (size int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size = 1 << 20
	free := f.cfg.Memory - f.used
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
		return 0, fmt.Errorf("circuits already use %d bytes of memory, of %d (NCCL_MESH_RELAY_MEMORY)", f.used, f.cfg.Memory)
	}
	f.used += int64(ring)
	return ring, nil
}

// Circuits returns the number of circuits.
func (f *Forwarder) Circuits() (n int) {
	for i := range f.slots {
		if f.slots[i].Load() != nil {
			n++
		}
	}
	return n
}

// closeTime is how long Close waits without any circuit being torn down before it gives up.
const closeTime = 10 * time.Second

// Close ends all circuits and releases all resources. It waits as long as circuits are still being torn down.
func (f *Forwarder) Close() error {
	defer f.signalClosed()
	over := f.close()
	if over == nil {
		return nil
	}
	for i := range f.slots {
		if c := f.slots[i].Load(); c != nil {
			c.Drop(errors.New("this process ends"))
		}
	}
	f.stopping.Store(true)
	f.wake()
	if !f.await(over) {
		return fmt.Errorf("%w: %d circuits did not come down", fault.ErrInternal, f.Circuits())
	}
	f.makeTurn.Lock()
	defer f.makeTurn.Unlock()
	var errs []error
	for _, d := range f.devices {
		errs = append(errs, d.close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.devices = nil
	f.queues.Store(&[]*queue{})
	if w := f.waiter; w != nil {
		forkfd.Do(func() {
			unmark(w.FD())
			_ = w.Close()
		})
		f.waiter = nil
	}
	return nil
}

// await waits until all circuits are torn down and the thread has ended, and reports whether they are. It gives up when
// no circuit was torn down for closeTime.
func (f *Forwarder) await(over <-chan struct{}) bool {
	late := f.cfg.Clock.NewTimer(closeTime)
	defer late.Stop()
	for over != nil || f.Circuits() > 0 {
		select {
		case <-over:
			over = nil
		case <-f.freed:
			late.Reset(closeTime)
		case <-late.C:
			return false
		}
	}
	return true
}

// close stops the making of circuits, and returns a channel that is closed when the thread has ended; nil if there is
// no thread.
func (f *Forwarder) close() <-chan struct{} {
	f.makeTurn.Lock() // circuits in the making are stored when this returns
	defer f.makeTurn.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closing = true
	return f.over
}
