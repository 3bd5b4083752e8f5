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

// DeregMR ends a registration: after it has returned nil nothing touches the
// memory. Receives that use it and that nothing has come for yet may stay
// outstanding; the connection fails when data comes for them. When other requests
// use it, or the registration is shared, the connection is stopped first. After an
// error the memory is registered as before.
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
	if n := r.inflight.Load(); n > 0 && !c.withdraw(r) {
		c.fail(fmt.Errorf("%w: %v: memory at %#x was deregistered with %d requests outstanding", ErrUsage, c, r.addr, n))
		if err := c.quiesce(); err != nil {
			return fmt.Errorf("memory at %#x stays registered: %w", r.addr, err)
		}
	}
	if err := c.drop(r); err != nil {
		return err
	}
	delete(c.regions, r)
	return nil
}

// withdraw takes the memory of outstanding receives from them and reports whether
// nothing can touch it any more. That takes no more than the end of its
// registration, unless another connection holds that too.
func (c *conn) withdraw(r *Region) bool {
	h, ok := c.half.(*RecvConn)
	if !ok || h.arriving(r) {
		return false
	}
	for i := range r.shared {
		if s := r.shared[i]; s != nil {
			if alone, err := c.devs[i].port.releaseAlone(s); !alone || err != nil {
				return false
			}
			r.shared[i] = nil
		}
		if m := r.own[i]; m != nil {
			if m.Close() != nil {
				return false
			}
			r.own[i] = nil
		}
	}
	h.withdraw(r)
	c.withdrawn.Store(r.addr)
	return true
}

// blame completes an error that data for withdrawn memory may have caused.
func (c *conn) blame(err error) error {
	addr := c.withdrawn.Load()
	if addr == 0 {
		return err
	}
	return fmt.Errorf("%w: %v: memory at %#x was deregistered with a receive outstanding, for which data seems to have come: %w", ErrUsage, c, addr, err)
}

// drop gives back whatever of r is registered. What cannot be given back stays.
func (c *conn) drop(r *Region) error {
	var errs []error
	for i := range r.shared {
		if s := r.shared[i]; s != nil {
			if err := c.devs[i].port.release(s); err != nil {
				errs = append(errs, err)
			} else {
				r.shared[i] = nil
			}
		}
		if m := r.own[i]; m != nil {
			if err := m.Close(); err != nil {
				errs = append(errs, err)
			} else {
				r.own[i] = nil
			}
		}
	}
	return errors.Join(errs...)
}

// dropAll gives back what is still registered.
func (c *conn) dropAll() error {
	var errs []error
	for r := range c.regions {
		if err := c.drop(r); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(c.regions, r)
	}
	return errors.Join(errs...)
}
