package copier

import (
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
	clock clock.Clock

	mu      turn.Turn // guards all fields below; Register, Renew and Close hold it while they wait, the others only try it
	devices []*device
	current int // index of the device that carries tasks out
	failed  int // devices that have failed since a step succeeded
	queue   queue
	step    step // of the oldest task
	reading bool // a READ of it is outstanding
	err     error
}

// device is a port with a queue pair to itself.
type device struct {
	port  *verbs.Port
	loop  verbs.Loopback
	mem   *ibv.Memory
	mr    *ibv.MR
	words []uint64 // of mem: see scratch
}

// scratch numbers the words that a device's READs use.
const (
	before  = 0 // value of a word before its change
	after   = 1 // value that it gets
	visible = 2 // what the last READ of a task reads
	words   = 3
)

// New returns a copier over ports, the preferred first. It opens them when memory is registered. k paces the waits of Close.
func New(ports []*verbs.Port, k clock.Clock) *Copier {
	c := &Copier{clock: k}
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
	mrs    []*ibv.MR // by device
	closed bool      // guarded by Copier.mu
}

// Register registers memory with all devices. It may wait for them. The memory must stay there until Close.
func (c *Copier) Register(m lane.Memory) (_ *Region, err error) {
	if len(c.devices) == 0 {
		return nil, fmt.Errorf("%w: %v: the process uses no RDMA port, and the processor cannot reach the memory", fault.ErrUsage, m)
	}
	r := &Region{c: c, memory: m}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, d := range c.devices {
		if err := c.open(d); err != nil {
			return nil, err
		}
		mr, err := d.register(m)
		if err != nil {
			return nil, fmt.Errorf("register %v on %v: %w", m, d.port, err)
		}
		r.mrs = append(r.mrs, mr)
	}
	return r, nil
}

// register registers memory that the device itself reads and writes.
func (d *device) register(m lane.Memory) (*ibv.MR, error) {
	const access = ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_READ
	if b := m.DMABuf; b != nil {
		return d.port.PD().RegDmaBufMR(b.Offset, uint64(m.Length), uint64(m.Addr), b.FD, access)
	}
	return d.port.PD().RegMR(m.Addr, m.Length, access)
}

// Close deregisters the memory, once no task uses it any more. It may wait for devices.
func (r *Region) Close() error {
	for r.c.retire(r) {
		r.c.Poll()
		r.c.clock.Sleep(pollPause)
	}
	var errs []error
	for _, mr := range r.mrs {
		errs = append(errs, mr.Close())
	}
	r.mrs = nil
	return errors.Join(errs...)
}

// pollPause is how long Close waits between two looks at a task.
const pollPause = 20 * time.Microsecond

// retire lets no task begin to use a region, and reports whether one uses it.
func (c *Copier) retire(r *Region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.closed = true
	if c.err != nil {
		return c.reading
	}
	for n := c.queue.done + 1; n <= c.queue.begun; n++ {
		if t := &c.queue.tasks[n%Most]; t.to == r || t.from == r {
			return true
		}
	}
	return false
}

// covers reports whether the region has n bytes at addr.
func (r *Region) covers(addr uintptr, n uint64) bool {
	m := &r.memory
	return addr >= m.Addr && n <= uint64(m.Length) && uint64(addr-m.Addr) <= uint64(m.Length)-n
}

// open makes a device's queue pair and the memory of its words.
func (c *Copier) open(d *device) (err error) {
	if err := d.loop.Open(d.port); err != nil {
		return err
	}
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
	d.mr, err = d.register(lane.Memory{Addr: d.mem.Addr(), Length: uintptr(d.mem.Len())})
	return err
}

// Renew makes the queue pairs of devices again that have failed, as when their ports have a link again. It may wait.
func (c *Copier) Renew() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading {
		return nil
	}
	var errs []error
	for _, d := range c.devices {
		errs = append(errs, d.loop.Renew())
	}
	return errors.Join(errs...)
}

// Close ends all tasks and closes the queue pairs. All regions must have been closed.
func (c *Copier) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = fmt.Errorf("%w: the copier was closed", fault.ErrUsage)
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
