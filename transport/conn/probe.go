package conn

import (
	"errors"

	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
)

// NewProbe makes a connection that only validates paths: its lanes carry validation packets and no messages.
func NewProbe(env *Env, s *control.Session, id uint32, sending bool) *Conn {
	c := &Conn{}
	c.init(env, s, id, sending, noMessages{})
	c.Probe = true
	return c
}

// noMessages is the sink of a probe's lanes. It refuses messages.
type noMessages struct{}

var _ lane.Sink = noMessages{}

func (noMessages) Delivered(*lane.Lane, int, int) {}
func (noMessages) Place(*lane.Lane, uint32, uint64, uint32) (uintptr, *lane.Region, bool) {
	return 0, nil, false
}
func (noMessages) Dropped(*lane.Lane, uint32)           {}
func (noMessages) Arrived(*lane.Lane, uint32, int64)    {}
func (noMessages) Eager(*lane.Lane, lane.Eager, []byte) {}
func (noMessages) EagerMatched(lane.EagerMatch) error {
	return errors.New("eager messages where only paths are validated")
}
func (noMessages) Granted(uint64, []lane.Grant) error {
	return errors.New("a grant where only paths are validated")
}
func (noMessages) Regranted(*lane.Lane, uint8) {}
