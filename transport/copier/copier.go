package copier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/turn"
)

// Copier copies memory by the RDMA ports of a process. Its methods may be called from any goroutine.
type Copier struct {
	Config
	devices []*device

	mu        turn.Turn // guards all fields below; Renew and Close hold it while they wait, the others only try it
	current   int       // index of the device that carries tasks out
	failed    int       // devices that have failed since a step succeeded
	queue     queue
	step      step // of the oldest task
	reading   bool // a READ of it is outstanding
	outage    outage
	repairing bool // a goroutine renews queue pairs
	closed    bool
}

// Config is what a copier needs of its transport.
type Config struct {
	Wait       time.Duration   // how long tasks wait for a device, while none works, before they fail
	Clock      clock.Clock     // paces the waits
	Context    context.Context // ends before Close
	Background func(f func())  // runs a function on a goroutine that ends before Close; once Context has ended it may run it before it returns
}

// device is a port with a queue pair to itself.
type device struct {
	port  *verbs.Port
	loop  verbs.Loopback
	mem   *ibv.Memory
	mr    *ibv.MR
	words []uint64 // of mem: see scratch; nil while no memory was registered
	shut  bool     // the queue pair could not be made, and Renew tries again
}

// scratch numbers the words that a device's READs use.
const (
	before  = 0 // value of a word before its change
	after   = 1 // value that it gets
	visible = 2 // what the last READ of a task reads
	words   = 3
)

// New returns a copier over ports, the preferred first. It opens them when memory is registered.
func New(ports []*verbs.Port, config Config) *Copier {
	c := &Copier{Config: config}
	for _, p := range ports {
		c.devices = append(c.devices, &device{port: p})
	}
	return c
}

// Devices returns the number of RDMA ports.
func (c *Copier) Devices() int { return len(c.devices) }

// Region is memory that tasks may name.
type Region struct {
	c      *Copier
	memory lane.Memory
	held   []lane.Registration // by device
	closed bool                // guarded by Copier.mu
}

// Register registers memory with all devices, or shares a registration that covers it. It may wait for them. The memory must stay
// there until Close. A device without a queue pair, because its port is down, is left out until it has one, unless that is so for all.
func (c *Copier) Register(m lane.Memory) (_ *Region, err error) {
	if len(c.devices) == 0 {
		return nil, fmt.Errorf("%w: register %v: the process uses no RDMA port, and the processor cannot reach that memory: use host memory, or NCCL_MESH_TRANSPORT=rdma where there are adapters", fault.ErrUsage, m)
	}
	r := &Region{c: c, memory: m}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := c.open(); err != nil {
		return nil, err
	}
	for _, d := range c.devices {
		held, err := d.port.RegisterToCopy(m)
		if err != nil {
			return nil, fmt.Errorf("register %v on %v: %w", m, d.port, err)
		}
		r.held = append(r.held, held)
	}
	return r, nil
}

// Close deregisters the memory, once no task uses it any more. It may wait for devices.
func (r *Region) Close() error {
	for r.c.retire(r) {
		r.c.Poll()
		r.c.Clock.Sleep(pollPause)
	}
	var errs []error
	for _, held := range r.held {
		errs = append(errs, held.Release())
	}
	r.held = nil
	return errors.Join(errs...)
}

// pollPause is how long Close waits between two looks at a task.
const pollPause = 20 * time.Microsecond

// retire lets no task begin to use a region, and reports whether one uses it. Tasks that use it and wait for a device are dropped,
// because that may take long.
func (c *Copier) retire(r *Region) (used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.closed = true
	for n := c.queue.done + 1; n <= c.queue.begun; n++ {
		t := c.queue.task(n)
		switch {
		case t.to != r && t.from != r:
		case c.failed >= len(c.devices) && !(c.reading && n == c.queue.done+1): // none works at present
			t.dropped = true
		default:
			used = true
		}
	}
	c.advance()
	return used
}

// covers reports whether the region has n bytes at addr.
func (r *Region) covers(addr uintptr, n uint64) bool {
	m := &r.memory
	return addr >= m.Addr && n <= uint64(m.Length) && uint64(addr-m.Addr) <= uint64(m.Length)-n
}

// open makes the devices' queue pairs and the memory of their words. It fails if no device has a queue pair.
func (c *Copier) open() error {
	var errs []error
	for _, d := range c.devices {
		if err := c.prepare(d); err != nil {
			return err
		}
		err := d.loop.Open(d.port) // which may wait, without a lock
		c.mu.Lock()
		d.shut = err != nil
		c.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) < len(c.devices) {
		return nil
	}
	return errors.Join(errs...)
}

// prepare makes the memory of a device's words.
func (c *Copier) prepare(d *device) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.mr != nil {
		return nil
	}
	if d.mem == nil {
		if d.mem, err = ibv.Alloc(words * 8); err != nil {
			return err
		}
		d.words = ibv.Carve[uint64](d.mem, words)
	}
	d.mr, err = d.port.PD().RegMR(d.mem.Addr(), uintptr(d.mem.Len()), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_READ)
	return err
}

// Renew makes the queue pairs of devices again that have failed, and goes on with tasks that wait for a device. A transport calls it when
// a port has changed, so that a device is used again at once. It may wait.
func (c *Copier) Renew() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	var errs []error
	for _, d := range c.devices {
		err := d.loop.Renew() // which leaves one alone that works
		if d.shut {
			err = d.loop.Open(d.port)
			d.shut = err != nil
		}
		errs = append(errs, err)
	}
	c.tryAgain()
	return errors.Join(errs...)
}

// Close ends all tasks and closes the queue pairs. All regions must have been closed.
func (c *Copier) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, d := range c.devices {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

func (d *device) close() error {
	if err := d.loop.Close(); err != nil {
		return err
	}
	if d.mr != nil {
		if err := d.mr.Close(); err != nil {
			return err
		}
		d.mr = nil
	}
	if d.mem == nil {
		return nil
	}
	m := d.mem
	d.mem = nil
	return m.Free()
}
