package conn

import (
	"context"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// absent is the carrier of a place among a connection's lanes that no lane has had yet. It holds nothing, and it carries
// nothing: its lane is Stopped from the beginning, so that nobody asks it to.
type absent struct{}

var _ lane.Carrier = absent{}

var errAbsent = fmt.Errorf("%w: no lane has had this place yet", fault.ErrInternal)

func (absent) Offer(*handshake.Lane)                              {}
func (absent) Connect(context.Context, handshake.Lane, int) error { return errAbsent }
func (absent) Lacked() error                                      { return nil }
func (absent) PostProof() error                                   { return errAbsent }
func (absent) Proved() (sent, came bool, err error)               { return false, false, errAbsent }
func (absent) Number() int                                        { return 0 }
func (absent) Terms() string                                      { return "" }
func (absent) Remark() string                                     { return "" }
func (absent) Reaches(*lane.Grant) bool                           { return false }
func (absent) Room(int) (bool, error)                             { return false, nil }
func (absent) Send(*lane.Part) error                              { return errAbsent }
func (absent) Grantable() bool                                    { return false }
func (absent) Prepare() error                                     { return errAbsent }
func (absent) SendGrant(uint64, []lane.Grant, bool) error         { return errAbsent }
func (absent) Fetch()                                             {}
func (absent) Owes() bool                                         { return false }
func (absent) Delivering(bool) bool                               { return false }
func (absent) Stalled() bool                                      { return false }
func (absent) Unsent() int                                        { return 0 }
func (absent) Stop() error                                        { return nil }
func (absent) Drained() bool                                      { return true }
func (absent) Close() error                                       { return nil }

// absentBefore fills a place before l that no lane has had yet.
func absentBefore(l *lane.Lane, index int) *lane.Lane {
	a := lane.New(l.Conn, index, lane.Plan{Port: l.Port, From: l.From, Peer: l.Peer, Weight: l.Weight})
	a.Carrier = absent{}
	a.Rest()
	a.Enter(lane.Stopped)
	return a
}
