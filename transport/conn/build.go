package conn

import (
	"fmt"
	"slices"

	"ncclmesh/transport/lane"
)

// build opens the domains and makes the lanes of the connection's first plan.
func (s *setup) build(plan []lane.Spec) (err error) {
	c := s.c
	if c.Ring, err = lane.NewControlRing(); err != nil {
		return err
	}
	ports, to := portsOf(plan)
	c.domainMu.Lock()
	for i, p := range ports {
		if err == nil {
			err = c.openDomain(p, to[i])
		}
	}
	c.domainMu.Unlock()
	if err != nil {
		return err
	}
	if err := c.openBoard(); err != nil {
		return err
	}
	for i, p := range plan {
		if err := s.makeLane(p, i); err != nil {
			return err
		}
	}
	return nil
}

// makeLane makes a lane of that index. A lane of the first set-up is added to the connection at once, so that
// closing the connection closes it however the set-up ends.
func (s *setup) makeLane(p lane.Spec, index int) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	d := s.c.domainOf(p.Port)
	l := lane.New(&s.c.Shared, index, p)
	l.Epoch, l.Domain = s.epoch, slices.Index(s.c.domains, d)
	c, err := d.NewLane(l)
	if err != nil {
		return fmt.Errorf("%v: %v: %w", s.c, p.Port.Now(), err)
	}
	l.Carrier = c
	if s.lanes = append(s.lanes, l); s.epoch == 0 {
		s.c.lanes = append(s.c.lanes, l)
	}
	return nil
}
