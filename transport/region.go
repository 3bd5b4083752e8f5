package transport

import (
	"errors"
	"fmt"
	"sync/atomic"

	"ncclmesh/ibv"
)

// Region is memory registered for one connection, on every device of it.
type Region struct {
	addr, length uintptr
	lkeys, rkeys [maxDevices]uint32 // by device of the connection
	shared       [maxDevices]*registration
	own          [maxDevices]*ibv.MR // DMA-BUF registrations are not shared
	inflight     atomic.Int32        // requests that use it
}

// access is how user memory is registered.
func (c *conn) access() uint32 {
	a := uint32(ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE)
	if c.t.opts.RelaxedOrdering != 0 {
		a |= ibv.IBV_ACCESS_RELAXED_ORDERING
	}
	return a
}

// RegMR registers host memory for the connection. It may be called while other
// threads send and receive.
func (c *conn) RegMR(addr, length uintptr) (*Region, error) {
	r := &Region{addr: addr, length: length}
	if length == 0 {
		return r, c.keep(r) // nothing but empty messages fit
	}
	for i, d := range c.devs {
		s, err := d.port.register(regKey{addr, length, c.access()})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register %d bytes at %#x on %s: %w", length, addr, d.port.String(), err), c.drop(r))
		}
		r.shared[i], r.lkeys[i], r.rkeys[i] = s, s.mr.LKey(), s.mr.RKey()
	}
	return r, c.keep(r)
}

// RegDmaBufMR registers the memory of a DMA-BUF that the process sees at addr.
func (c *conn) RegDmaBufMR(addr, length uintptr, offset uint64, fd int) (*Region, error) {
	if len(c.sockets) > 0 {
		return nil, fmt.Errorf("%w: %v: DMA-BUF %d: a connection over TCP takes host memory only", ErrUsage, c, fd)
	}
	r := &Region{addr: addr, length: length}
	for i, d := range c.devs {
		mr, err := d.port.pd.RegDmaBufMR(offset, uint64(length), uint64(addr), fd, c.access())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register DMA-BUF %d, %d bytes at %#x on %s: %w", fd, length, addr, d.port.String(), err), c.drop(r))
		}
		r.own[i], r.lkeys[i], r.rkeys[i] = mr, mr.LKey(), mr.RKey()
	}
	return r, c.keep(r)
}

func (c *conn) keep(r *Region) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(fmt.Errorf("%w: register memory on a closed connection", ErrUsage), c.drop(r))
	}
	c.regions[r] = struct{}{}
	return nil
}

// DeregMR ends a registration. When requests that use it are outstanding the
// connection is stopped first: after DeregMR returns nothing touches the memory.
func (c *conn) DeregMR(r *Region) error {
	if r == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.regions[r]; !ok {
		return fmt.Errorf("%w: memory handle is not of this connection", ErrUsage)
	}
	if r.inflight.Load() > 0 {
		c.poll()
	}
	if n := r.inflight.Load(); n > 0 {
		c.fail(fmt.Errorf("%w: memory at %#x was deregistered with %d requests outstanding", ErrUsage, r.addr, n))
		c.quiesce()
	}
	delete(c.regions, r)
	return c.drop(r)
}

// drop gives back whatever of r is registered.
func (c *conn) drop(r *Region) error {
	var errs []error
	for i := range r.shared {
		if s := r.shared[i]; s != nil {
			errs = append(errs, c.devs[i].port.release(s))
		}
		if m := r.own[i]; m != nil {
			errs = append(errs, m.Close())
		}
		r.shared[i], r.own[i] = nil, nil
	}
	return errors.Join(errs...)
}
