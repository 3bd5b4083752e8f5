package conn

import (
	"errors"
	"fmt"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// portsOf returns the local ports of a plan's lanes, in order and each once, and for each the peer's ports
// that its lanes lead to.
func portsOf(plan []lane.Spec) (ports []lane.Port, to [][]handshake.Port) {
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

// domainOf returns the connection's domain over a port, or nil.
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

// mayUse reports whether lanes over a port may join. Lanes that need remote keys and lanes that do not cannot
// be mixed, because grants sent over the latter lack the keys. A connection that has had no lane in service
// may change from the former to the latter.
//
// Preconditions: c is locked.
func (c *Conn) mayUse(p lane.Port) bool {
	if noRKeys := p.Traits().NoRKeys; noRKeys != c.traits.NoRKeys && !(noRKeys && c.neverInService) {
		return false
	}
	if d := c.domainOf(p); d != nil {
		return d.HasRoom()
	}
	return len(c.domains) < lane.MaxDomains
}

// openDomain opens a domain over a port, for lanes to the ports to of the peer, and registers all memory of
// the connection in it. It does nothing if the connection has a domain over the port. It does not hold mu
// while it registers memory, because that may take long.
//
// Preconditions: c.domainMu is locked.
func (c *Conn) openDomain(p lane.Port, to []handshake.Port) error {
	c.mu.Lock()
	index, used := len(c.domains), c.domainOf(p) != nil
	c.mu.Unlock()
	switch {
	case used:
		return nil
	case index == lane.MaxDomains:
		return fmt.Errorf("%w: %v: the offered lanes use more than %d of our ports", fault.ErrProtocol, c, lane.MaxDomains)
	}
	d, err := p.Open(&c.Shared, index, to)
	if err != nil {
		return err
	}
	if err := c.registerAll(d, index); err != nil {
		return errors.Join(fmt.Errorf("%v: %v cannot be used too: %w", c, p.Now(), err), d.Close())
	}
	return nil
}

// registerAll registers in a new domain all memory that is registered in the others, and adds the domain to
// the connection. index is the index that the domain will have.
func (c *Conn) registerAll(d lane.Domain, index int) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		r := c.unregisteredAt(index)
		switch {
		case r == nil:
			c.domains = append(c.domains, d)
			c.publishSources()
			if c.receiver != nil {
				c.receiver.announceKeys()
			}
			t := d.Port().Traits()
			c.domainsAdded = c.domainsAdded || index > 0 && t.Polled != c.traits.Polled // grants over polled lanes have no keys
			c.traits = lane.Traits{Polled: c.traits.Polled || t.Polled, NoRKeys: c.traits.NoRKeys || t.NoRKeys, Eager: (index == 0 || c.traits.Eager) && t.Eager, MinPart: max(c.traits.MinPart, t.MinPart)}
			if t.Polled { // C must ask Go in every call, because only Go can poll these lanes
				c.board.Disable()
			}
			return nil
		case c.state.At() == Closed:
			err = c.abandoned()
		}
		var g lane.Registration
		if err == nil {
			r.Joining = true
			c.mu.Unlock()
			g, err = registerIn(d, r.Memory)
			c.mu.Lock()
			r.Joining = false
			c.regionJoined.Broadcast()
		}
		if err != nil {
			return errors.Join(err, c.unregister(index))
		}
		r.Hold(index, g)
	}
}

// unregisteredAt returns the first region that is not registered in the domain of that index, or nil.
//
// Preconditions: c is locked.
func (c *Conn) unregisteredAt(index int) *lane.Region {
	for _, r := range c.registered() {
		if r.Length > 0 && !r.Held(index) {
			return r
		}
	}
	return nil
}

// unregister ends all registrations in the domain of that index, which is not added to the connection.
//
// Preconditions: c is locked.
func (c *Conn) unregister(index int) error {
	var errs []error
	for _, r := range c.registered() {
		errs = append(errs, r.ReleaseAt(index))
	}
	return errors.Join(errs...)
}

// awaitJoining waits until no joining domain is registering r.
//
// Preconditions: c is locked. awaitJoining unlocks c while it waits, and locks it again.
func (c *Conn) awaitJoining(r *lane.Region) {
	for r.Joining {
		c.regionJoined.Wait()
	}
}
