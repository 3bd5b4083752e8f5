package lane

import "errors"

// Registration is a range of memory that one domain has registered.
type Registration interface {
	// Keys returns the keys with which this side's device and the peer's device use the memory.
	Keys() (local, remote uint32)
	// Release drops this reference to the registration. The last reference deregisters the memory, after which
	// no device touches it.
	Release() error
	// ReleaseAlone deregisters the memory if this is the only reference, and returns false if there are others.
	ReleaseAlone() (alone bool, err error)
}

// Region is memory that is registered in every domain of one connection.
type Region struct {
	Memory
	LKeys, RKeys [MaxDomains]uint32 // by index of the domain

	// Guarded by the connection's mutex.
	InUse   int  // requests that use the region
	Joining bool // a domain that is being added is registering it

	held  [MaxDomains]Registration
	known [MaxDomains]bool // the domain has been asked to register it; it may need no registration
}

// Covers reports whether the region contains the b bytes at addr. A nil region contains nothing.
func (r *Region) Covers(addr uintptr, b int) bool {
	return r != nil && addr >= r.Addr && addr+uintptr(b) <= r.Addr+r.Length
}

// Hold adds the registration of the domain at index place; g is nil if the domain needs none.
func (r *Region) Hold(place int, g Registration) {
	r.known[place] = true
	if g != nil {
		r.held[place] = g
		r.LKeys[place], r.RKeys[place] = g.Keys()
	}
}

// Held reports whether Hold has been called for the domain at index place.
func (r *Region) Held(place int) bool { return r.known[place] }

// ReleaseAt releases the registration of the domain at index place.
func (r *Region) ReleaseAt(place int) error {
	g := r.held[place]
	r.held[place], r.known[place], r.LKeys[place], r.RKeys[place] = nil, false, 0, 0
	if g == nil {
		return nil
	}
	return g.Release()
}

// Release releases all registrations, and then the copy of a DMA-BUF's descriptor. A registration that fails to be
// released stays in the region, so that Release can be called again.
func (r *Region) Release() error {
	var errs []error
	for i, g := range r.held {
		if g == nil {
			continue
		}
		if err := g.Release(); err != nil {
			errs = append(errs, err)
			continue
		}
		r.held[i] = nil
	}
	if b := r.DMABuf; b != nil && len(errs) == 0 {
		r.DMABuf = nil
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// ReleaseAlone deregisters the memory in every domain in which no other connection shares it. It returns false
// at the first registration that is shared or fails to be deregistered.
func (r *Region) ReleaseAlone() bool {
	for i, g := range r.held {
		if g == nil {
			continue
		}
		if alone, err := g.ReleaseAlone(); !alone || err != nil {
			return false
		}
		r.held[i] = nil
	}
	return true
}
