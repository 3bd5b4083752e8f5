package bundle

import (
	"fmt"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// build makes the domains and lanes of a connection's first plan.
func (s *setup) build(plan []lane.Plan) (err error) {
	b := s.Bundle
	if b.Wire, err = lane.NewWire(); err != nil {
		return err
	}
	var ports []lane.Port     // of each domain
	var to [][]handshake.Port // the peer's ports that its lanes lead to
	for _, p := range plan {
		i := slices.Index(ports, p.Port)
		if i < 0 {
			if len(ports) == lane.MaxDomains {
				return fmt.Errorf("%w: %v: the offered lanes use more than %d of our ports", fault.ErrProtocol, b, lane.MaxDomains)
			}
			i = len(ports)
			ports, to = append(ports, p.Port), append(to, nil)
		}
		to[i] = append(to[i], p.Peer)
	}
	for i, p := range ports {
		d, err := p.Open(&b.Conn, i, to[i])
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.domains = append(b.domains, d)
		t := p.Traits()
		b.traits = lane.Traits{Passive: b.traits.Passive || t.Passive, Cut: max(b.traits.Cut, t.Cut)}
		b.mu.Unlock()
	}
	if err := b.openBoard(); err != nil {
		return err
	}
	for i, p := range plan {
		if err := s.make(p, i, b.domains[slices.Index(ports, p.Port)]); err != nil {
			return err
		}
	}
	return nil
}

// make makes a lane of that index. One of the first is the bundle's at once, which gives
// it back whatever becomes of the set-up.
func (s *setup) make(p lane.Plan, index int, d lane.Domain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := lane.New(&s.Conn, index, p)
	l.Epoch = s.epoch
	c, err := d.NewLane(l)
	if err != nil {
		return fmt.Errorf("%v: %v: %w", s.Bundle, p.Port.Now(), err)
	}
	l.Carrier = c
	if s.own = append(s.own, l); s.epoch == 0 {
		s.lanes = append(s.lanes, l)
	}
	return nil
}
