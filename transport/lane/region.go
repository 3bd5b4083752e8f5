package lane

import "errors"

// Registration is a range of memory that one domain knows.
type Registration interface {
	// Keys are what this side's device and the peer's need to use it.
	Keys() (local, remote uint32)
	// Release gives it back: nothing touches the memory through it any more, unless
	// others share it.
	Release() error
	// ReleaseAlone does so if nobody shares it, and reports false if somebody does.
	ReleaseAlone() (alone bool, err error)
}

// Region is memory registered for one connection, in every domain of it.
type Region struct {
	Addr, Length uintptr
	LKeys, RKeys [MaxDomains]uint32 // by place of the domain
	Fixed        bool               // no domain that joins later can register it

	// Guarded by the connection's mutex.
	InUse   int  // requests that use it
	Joining bool // a domain that joins is registering it

	held  [MaxDomains]Registration
	known [MaxDomains]bool // to the domain, which may have no need to register it
}

// Covers reports whether b bytes at addr lie in the region; nil covers nothing.
func (r *Region) Covers(addr uintptr, b int) bool {
	return r != nil && addr >= r.Addr && addr+uintptr(b) <= r.Addr+r.Length
}

// Hold adds the registration of a domain.
func (r *Region) Hold(place int, g Registration) {
	r.known[place] = true
	if g != nil {
		r.held[place] = g
		r.LKeys[place], r.RKeys[place] = g.Keys()
	}
}

// Held reports whether the domain at a place knows the region.
func (r *Region) Held(place int) bool { return r.known[place] }

// ReleaseAt gives back what a domain knows.
func (r *Region) ReleaseAt(place int) error {
	g := r.held[place]
	r.held[place], r.known[place], r.LKeys[place], r.RKeys[place] = nil, false, 0, 0
	if g == nil {
		return nil
	}
	return g.Release()
}

// Release gives back whatever is registered. What cannot be given back stays.
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
	return errors.Join(errs...)
}

// ReleaseAlone gives back what is registered, as long as no other connection shares
// it, and reports whether that was all.
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
