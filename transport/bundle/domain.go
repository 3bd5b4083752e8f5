package bundle

import (
	"errors"
	"fmt"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// uses are the ports that lanes of a plan use, in order, and the peer's ports that those
// lanes lead to.
func uses(plan []lane.Plan) (ports []lane.Port, to [][]handshake.Port) {
	for _, p := range plan {
		i := slices.Index(ports, p.Port)
		if i < 0 {
			i = len(ports)
			ports, to = append(ports, p.Port), append(to, nil)
		}
		to[i] = append(to[i], p.Peer)
	}
	return ports, to
}

// domainOf is the connection's domain over a port, or nil.
//
// Preconditions: b is locked.
func (b *Bundle) domainOf(p lane.Port) lane.Domain {
	for _, d := range b.domains {
		if d.Port() == p {
			return d
		}
	}
	return nil
}

// mayUse reports whether lanes over a port may join. Those of devices do not join where
// lanes are blind, nor the other way round: grants that went over those lack what a device
// must know. Where none has gone yet it may become blind.
//
// Preconditions: b is locked.
func (b *Bundle) mayUse(p lane.Port) bool {
	if blind := p.Traits().Blind; blind != b.traits.Blind && !(blind && b.unused) {
		return false
	}
	if d := b.domainOf(p); d != nil {
		return d.HasRoom()
	}
	return len(b.domains) < lane.MaxDomains
}

// openDomain opens a domain over a port that the connection does not use yet, for lanes to
// those ports of the peer. All memory that is registered is registered there too; while
// that takes its time the mutex is free.
//
// Preconditions: b.growing is locked.
func (b *Bundle) openDomain(p lane.Port, to []handshake.Port) error {
	b.mu.Lock()
	place, used := len(b.domains), b.domainOf(p) != nil
	b.mu.Unlock()
	switch {
	case used:
		return nil
	case place == lane.MaxDomains:
		return fmt.Errorf("%w: %v: the offered lanes use more than %d of our ports", fault.ErrProtocol, b, lane.MaxDomains)
	}
	d, err := p.Open(&b.Conn, place, to)
	if err != nil {
		return err
	}
	if err := b.registerAll(d, place); err != nil {
		return errors.Join(fmt.Errorf("%v: %v cannot be used too: %w", b, p.Now(), err), d.Close())
	}
	return nil
}

// registerAll registers in a domain what the others know, and makes it the connection's.
func (b *Bundle) registerAll(d lane.Domain, place int) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		r := b.unheld(place)
		switch {
		case r == nil:
			b.domains = append(b.domains, d)
			t := d.Port().Traits()
			b.grown = b.grown || place > 0 && t.Passive != b.traits.Passive // grants over those have no keys
			b.traits = lane.Traits{Passive: b.traits.Passive || t.Passive, Blind: b.traits.Blind || t.Blind, Eager: (place == 0 || b.traits.Eager) && t.Eager, Cut: max(b.traits.Cut, t.Cut)}
			if t.Passive { // somebody must look at the lanes: every call is Go's
				b.Board.ComeIn()
			}
			return nil
		case b.closed:
			err = b.abandoned()
		case r.Fixed:
			err = fmt.Errorf("%w: memory at %#x is a GPU's, and was registered before", fault.ErrUsage, r.Addr)
		}
		var g lane.Registration
		if err == nil {
			r.Joining = true
			b.mu.Unlock()
			g, err = d.Register(r.Addr, r.Length)
			b.mu.Lock()
			r.Joining = false
			b.joined.Broadcast()
		}
		if err != nil {
			return errors.Join(err, b.unregister(place))
		}
		r.Hold(place, g)
	}
}

// unheld is the first region that the domain at a place does not know, or nil.
func (b *Bundle) unheld(place int) *lane.Region {
	for _, r := range b.registered() {
		if r.Length > 0 && !r.Held(place) {
			return r
		}
	}
	return nil
}

// unregister gives back what a domain knows that did not join.
func (b *Bundle) unregister(place int) error {
	var errs []error
	for _, r := range b.registered() {
		errs = append(errs, r.ReleaseAt(place))
	}
	return errors.Join(errs...)
}

// AwaitJoining waits until no domain that joins is registering r.
//
// Preconditions: b is locked, and it is again after.
func (b *Bundle) AwaitJoining(r *lane.Region) {
	for r.Joining {
		b.joined.Wait()
	}
}

// Grown reports whether the peer uses a port by now that older grants have no key for.
//
// Preconditions: b is locked.
func (b *Bundle) Grown() bool { return b.grown }
