package conn

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
func portsOf(plan []lane.Plan) (ports []lane.Port, to [][]handshake.Port) {
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
// Preconditions: c is locked.
func (c *Conn) domainOf(p lane.Port) lane.Domain {
	for _, d := range c.domains {
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
// Preconditions: c is locked.
func (c *Conn) mayUse(p lane.Port) bool {
	if blind := p.Traits().NoRKeys; blind != c.traits.NoRKeys && !(blind && c.neverInService) {
		return false
	}
	if d := c.domainOf(p); d != nil {
		return d.HasRoom()
	}
	return len(c.domains) < lane.MaxDomains
}

// openDomain opens a domain over a port that the connection does not use yet, for lanes to
// those ports of the peer. All memory that is registered is registered there too; while
// that takes its time the mutex is free.
//
// Preconditions: c.growing is locked.
func (c *Conn) openDomain(p lane.Port, to []handshake.Port) error {
	c.mu.Lock()
	place, used := len(c.domains), c.domainOf(p) != nil
	c.mu.Unlock()
	switch {
	case used:
		return nil
	case place == lane.MaxDomains:
		return fmt.Errorf("%w: %v: the offered lanes use more than %d of our ports", fault.ErrProtocol, c, lane.MaxDomains)
	}
	d, err := p.Open(&c.Shared, place, to)
	if err != nil {
		return err
	}
	if err := c.registerAll(d, place); err != nil {
		return errors.Join(fmt.Errorf("%v: %v cannot be used too: %w", c, p.Now(), err), d.Close())
	}
	return nil
}

// registerAll registers in a domain what the others know, and makes it the connection's.
func (c *Conn) registerAll(d lane.Domain, place int) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		r := c.unregisteredAt(place)
		switch {
		case r == nil:
			c.domains = append(c.domains, d)
			c.publishSources()
			t := d.Port().Traits()
			c.domainsAdded = c.domainsAdded || place > 0 && t.Polled != c.traits.Polled // grants over those have no keys
			c.traits = lane.Traits{Polled: c.traits.Polled || t.Polled, NoRKeys: c.traits.NoRKeys || t.NoRKeys, Eager: (place == 0 || c.traits.Eager) && t.Eager, MinPart: max(c.traits.MinPart, t.MinPart)}
			if t.Polled { // somebody must look at the lanes: every call is Go's
				c.board.ComeIn()
			}
			return nil
		case c.state.At() == Closed:
			err = c.abandoned()
		case r.Fixed:
			err = fmt.Errorf("%w: memory at %#x is a GPU's, and was registered before", fault.ErrUsage, r.Addr)
		}
		var g lane.Registration
		if err == nil {
			r.Joining = true
			c.mu.Unlock()
			g, err = d.Register(r.Addr, r.Length)
			c.mu.Lock()
			r.Joining = false
			c.regionJoined.Broadcast()
		}
		if err != nil {
			return errors.Join(err, c.unregister(place))
		}
		r.Hold(place, g)
	}
}

// unheld is the first region that the domain at a place does not know, or nil.
func (c *Conn) unregisteredAt(place int) *lane.Region {
	for _, r := range c.registered() {
		if r.Length > 0 && !r.Held(place) {
			return r
		}
	}
	return nil
}

// unregister gives back what a domain knows that did not join.
func (c *Conn) unregister(place int) error {
	var errs []error
	for _, r := range c.registered() {
		errs = append(errs, r.ReleaseAt(place))
	}
	return errors.Join(errs...)
}

// awaitJoining waits until no domain that joins is registering r.
//
// Preconditions: c is locked, and it is again after.
func (c *Conn) awaitJoining(r *lane.Region) {
	for r.Joining {
		c.regionJoined.Wait()
	}
}
