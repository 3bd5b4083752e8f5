package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Register registers host memory for the connection, in every domain. It may be
// called while other threads send and receive.
func (b *Bundle) Register(addr, length uintptr) (*lane.Region, error) {
	r := &lane.Region{Addr: addr, Length: length}
	return b.register(r, func(d lane.Domain) (lane.Registration, error) {
		g, err := d.Register(addr, length)
		if err != nil {
			err = fmt.Errorf("register %d bytes at %#x on %v: %w", length, addr, d.Port().Now(), err)
		}
		return g, err
	})
}

// RegisterDmaBuf registers the memory of a DMA-BUF that the process sees at addr. Its
// descriptor is not kept: no domain can join the connection as long as it is registered.
func (b *Bundle) RegisterDmaBuf(addr, length uintptr, offset uint64, fd int) (*lane.Region, error) {
	r := &lane.Region{Addr: addr, Length: length, Fixed: true}
	return b.register(r, func(d lane.Domain) (lane.Registration, error) {
		g, err := d.RegisterDmaBuf(addr, length, offset, fd)
		if err != nil {
			err = fmt.Errorf("%v: register DMA-BUF %d, %d bytes at %#x on %v: %w", b, fd, length, addr, d.Port().Now(), err)
		}
		return g, err
	})
}

// register registers r in every domain there is, those that join meanwhile included.
// Nothing but empty messages fit an empty one.
func (b *Bundle) register(r *lane.Region, in func(lane.Domain) (lane.Registration, error)) (*lane.Region, error) {
	for place := 0; ; place++ {
		b.mu.Lock()
		if r.Length == 0 || place == len(b.domains) {
			defer b.mu.Unlock()
			return r, b.keep(r)
		}
		d := b.domains[place]
		b.mu.Unlock()
		g, err := in(d)
		if err != nil {
			return nil, errors.Join(err, r.Release())
		}
		r.Hold(place, g)
	}
}

// keep makes r the connection's.
//
// Preconditions: b is locked.
func (b *Bundle) keep(r *lane.Region) error {
	if b.closed {
		return errors.Join(fmt.Errorf("%w: register memory on a closed connection", fault.ErrUsage), r.Release())
	}
	b.kept++
	b.regions[r] = b.kept
	return nil
}

// Holds reports whether r is registered for this connection.
//
// Preconditions: b is locked.
func (b *Bundle) Holds(r *lane.Region) bool {
	_, ok := b.regions[r]
	return ok
}

// Drop ends a registration that no request uses, once no domain that joins is at it.
// After an error the memory is registered as before.
//
// Preconditions: b is locked, and it is again after.
func (b *Bundle) Drop(r *lane.Region) error {
	b.AwaitJoining(r)
	if err := r.Release(); err != nil {
		return err
	}
	delete(b.regions, r)
	return nil
}

// Withdraw ends a registration that outstanding receives use, and reports whether
// nothing can touch the memory any more. That takes no more than the end of its
// registration, unless another connection holds that too.
//
// Preconditions: b is locked, and no carrier is about to write the memory itself.
func (b *Bundle) Withdraw(r *lane.Region) bool {
	if !r.ReleaseAlone() {
		return false
	}
	b.withdrawn.Store(r.Addr)
	return true
}

// Blame completes an error that data for withdrawn memory may have caused. It may be
// called from any goroutine.
func (b *Bundle) Blame(err error) error {
	addr := b.withdrawn.Load()
	if addr == 0 {
		return err
	}
	return fmt.Errorf("%w: %v: memory at %#x was deregistered with a receive outstanding, for which data seems to have come: %w", fault.ErrUsage, b, addr, err)
}

// registered returns the regions in the order in which they were registered.
//
// Preconditions: b is locked.
func (b *Bundle) registered() []*lane.Region {
	return slices.SortedFunc(maps.Keys(b.regions), func(x, y *lane.Region) int { return cmp.Compare(b.regions[x], b.regions[y]) })
}

// dropAll gives back what is still registered.
func (b *Bundle) dropAll() error {
	var errs []error
	for _, r := range b.registered() {
		errs = append(errs, b.Drop(r))
	}
	return errors.Join(errs...)
}
