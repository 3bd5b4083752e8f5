package conn

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// RegMR registers memory in every domain of the connection. It may be called while other threads send and
// receive.
func (c *Conn) RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error) {
	return c.register(&lane.Region{Memory: lane.Memory{Kind: kind, Addr: addr, Length: length}})
}

// RegDmaBufMR registers the memory that the process sees at addr by a DMA-BUF, in which it begins at offset: see
// [lane.KeepDMABuf]. The caller may close the descriptor after the call, because the region keeps a copy of it, for
// ports that join later.
func (c *Conn) RegDmaBufMR(kind lane.MemoryKind, addr, length uintptr, offset uint64, fd int) (*lane.Region, error) {
	m := lane.Memory{Kind: kind, Addr: addr, Length: length}
	if length > 0 {
		m.DMABuf = lane.KeepDMABuf(fd, addr, offset)
	}
	return c.register(&lane.Region{Memory: m})
}

// register registers r in every domain of the connection, also in domains that join meanwhile, and adds r to the
// connection. An empty region is registered in no domain. After an error r is registered nowhere.
func (c *Conn) register(r *lane.Region) (*lane.Region, error) {
	for index := 0; ; index++ {
		c.mu.Lock()
		if r.Length == 0 || index == len(c.domains) {
			defer c.mu.Unlock()
			if r.DMABuf != nil {
				r.DMABuf.Forget()
			}
			if c.receiver != nil && r.Kind == lane.GPUMemory {
				c.receiver.flushes.prepare(c.receiver)
			}
			if err := c.addRegion(r); err != nil {
				return nil, err
			}
			return r, nil
		}
		d := c.domains[index]
		c.mu.Unlock()
		g, err := registerIn(d, r.Memory)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%v: %w", c, err), r.Release())
		}
		r.Hold(index, g)
	}
}

// registerIn registers memory in a domain.
func registerIn(d lane.Domain, m lane.Memory) (lane.Registration, error) {
	if m.Kind != lane.HostMemory && d.Port().Traits().HostOnly {
		return nil, fmt.Errorf("%w: register %v: the processor moves the bytes of lanes over %v, and cannot reach that memory; NCCL_MESH_TRANSPORT=rdma keeps connections to RDMA", fault.ErrUsage, m, d.Port().Now())
	}
	if m.DMABuf != nil && m.DMABuf.FD < 0 {
		return nil, fmt.Errorf("%w: register %v on %v: the descriptor of its DMA-BUF could not be kept, because the process has too many open", fault.ErrUsage, m, d.Port().Now())
	}
	g, err := d.Register(m)
	if err != nil {
		err = fmt.Errorf("register %v on %v: %w", m, d.Port().Now(), err)
	}
	return g, err
}

// addRegion adds a registered region to the connection.
//
// Preconditions: c is locked.
func (c *Conn) addRegion(r *lane.Region) error {
	if c.state.At() == Closed {
		return errors.Join(fmt.Errorf("%w: register memory on a closed connection", fault.ErrUsage), r.Release())
	}
	c.registrations++
	c.regions[r] = c.registrations
	return nil
}

// DeregMR ends a registration. Once it has returned nil no device touches the memory. Receives that use it
// and for which no data has arrived may stay outstanding; the connection fails if data comes for them. If
// other requests use the memory, or if another connection shares the registration, the lanes are stopped
// first and the connection fails. After an error the memory is still registered.
func (c *Conn) DeregMR(r *lane.Region) error {
	if r == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasRegion(r) {
		return fmt.Errorf("%w: the memory handle belongs to another connection", fault.ErrUsage)
	}
	c.awaitJoining(r)
	if r.InUse > 0 {
		c.poll()
	}
	switch n := r.InUse; {
	case n == 0:
	case c.receiver != nil && c.receiver.noneInProgress(r) && c.withdraw(r):
		c.receiver.detachBuffers(r)
	default:
		c.Fail(fmt.Errorf("%w: %v: memory at %#x was deregistered with %d requests outstanding", fault.ErrUsage, c, r.Addr, n))
		if err := c.quiesce(); err != nil {
			return fmt.Errorf("memory at %#x stays registered: %w", r.Addr, err)
		}
		if !c.hasRegion(r) { // Close was called meanwhile and has released it
			return nil
		}
	}
	return c.removeRegion(r)
}

// hasRegion reports whether r is registered for this connection.
//
// Preconditions: c is locked.
func (c *Conn) hasRegion(r *lane.Region) bool {
	_, ok := c.regions[r]
	return ok
}

// removeRegion ends a registration that no request uses. It waits for a joining domain that is registering r.
// After an error the memory is still registered.
//
// Preconditions: c is locked. removeRegion may unlock c while it waits, and locks it again.
func (c *Conn) removeRegion(r *lane.Region) error {
	c.awaitJoining(r)
	if err := r.Release(); err != nil {
		return err
	}
	delete(c.regions, r)
	return nil
}

// withdraw ends a registration that outstanding receives use, and reports whether it did, so that no device
// can touch the memory any more. It does nothing if another connection shares the registration.
//
// Preconditions: c is locked, and no carrier is writing to the memory itself.
func (c *Conn) withdraw(r *lane.Region) bool {
	if !r.ReleaseAlone() {
		return false
	}
	c.withdrawn.Store(r.Addr)
	return true
}

// explainWithdrawn returns err, wrapped in a usage error if memory was deregistered with a receive
// outstanding, because data for that memory is then the likely cause. It may be called from any goroutine.
func (c *Conn) explainWithdrawn(err error) error {
	addr := c.withdrawn.Load()
	if addr == 0 {
		return err
	}
	return fmt.Errorf("%w: %v: memory at %#x was deregistered with a receive outstanding or a window open, for which data seems to have come: %w", fault.ErrUsage, c, addr, err)
}

// registered returns the regions in the order in which they were registered.
//
// Preconditions: c is locked.
func (c *Conn) registered() []*lane.Region {
	return slices.SortedFunc(maps.Keys(c.regions), func(x, y *lane.Region) int { return cmp.Compare(c.regions[x], c.regions[y]) })
}

// removeRegions ends all registrations.
//
// Preconditions: c is locked.
func (c *Conn) removeRegions() error {
	var errs []error
	for _, r := range c.registered() {
		errs = append(errs, c.removeRegion(r))
	}
	return errors.Join(errs...)
}
