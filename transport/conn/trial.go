package conn

import (
	"errors"

	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
)

// NewTrial makes a connection that carries nothing but the proofs of its lanes.
func NewTrial(env *Env, s *control.Session, id uint32, sending bool) *Conn {
	c := &Conn{}
	c.make(env, s, id, sending, nothing{})
	c.Trial = true
	return c
}

// nothing is what the lanes of a trial carry: no messages.
type nothing struct{}

var _ lane.Sink = nothing{}

func (nothing) Delivered(*lane.Lane, int, int) {}
func (nothing) Place(*lane.Lane, uint32, uint64, uint32) (uintptr, *lane.Region, bool) {
	return 0, nil, false
}
func (nothing) Dropped(*lane.Lane, uint32)           {}
func (nothing) Arrived(*lane.Lane, uint32, int64)    {}
func (nothing) Eager(*lane.Lane, lane.Eager, []byte) {}
func (nothing) Taken(lane.Taken) error {
	return errors.New("eager messages where only paths are validated")
}
func (nothing) Granted(uint64, []lane.Grant) error {
	return errors.New("a grant where only paths are validated")
}
func (nothing) Regranted(*lane.Lane, uint8) {}
