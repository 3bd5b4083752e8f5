package bundle

import (
	"fmt"

	"ncclmesh/transport/lane"
)

// build makes the domains and lanes of a connection's first plan.
func (s *setup) build(plan []lane.Plan) (err error) {
	b := s.b
	if b.Wire, err = lane.NewWire(); err != nil {
		return err
	}
	ports, to := uses(plan)
	b.growing.Lock()
	for i, p := range ports {
		if err == nil {
			err = b.openDomain(p, to[i])
		}
	}
	b.growing.Unlock()
	if err != nil {
		return err
	}
	if err := b.openBoard(); err != nil {
		return err
	}
	for i, p := range plan {
		if err := s.make(p, i); err != nil {
			return err
		}
	}
	return nil
}

// make makes a lane of that index. One of the first is the bundle's at once, which gives
// it back whatever becomes of the set-up.
func (s *setup) make(p lane.Plan, index int) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	d := s.b.domainOf(p.Port)
	l := lane.New(&s.b.Conn, index, p)
	l.Epoch = s.epoch
	c, err := d.NewLane(l)
	if err != nil {
		return fmt.Errorf("%v: %v: %w", s.b, p.Port.Now(), err)
	}
	l.Carrier = c
	if s.own = append(s.own, l); s.epoch == 0 {
		s.b.lanes = append(s.b.lanes, l)
	}
	return nil
}
