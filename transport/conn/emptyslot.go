package conn

import (
	"context"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// emptySlot is the carrier of an index that no lane has had yet. Its lane is Stopped from the beginning, so
// that nothing is sent over it.
type emptySlot struct{}

var _ lane.Carrier = emptySlot{}

var errEmptySlot = fmt.Errorf("%w: no lane has had this index yet", fault.ErrInternal)

func (emptySlot) Offer(*handshake.Lane)                              {}
func (emptySlot) Connect(context.Context, handshake.Lane, int) error { return errEmptySlot }
func (emptySlot) LocalError() error                                  { return nil }
func (emptySlot) PostProbe() error                                   { return errEmptySlot }
func (emptySlot) Probed() (sent, came bool, err error)               { return false, false, errEmptySlot }
func (emptySlot) Number() int                                        { return 0 }
func (emptySlot) Terms() string                                      { return "" }
func (emptySlot) Remark() string                                     { return "" }
func (emptySlot) Reaches(*lane.Grant) bool                           { return false }
func (emptySlot) Room(int) (bool, error)                             { return false, nil }
func (emptySlot) Send(*lane.Part) error                              { return errEmptySlot }
func (emptySlot) Grantable() bool                                    { return false }
func (emptySlot) Prepare() error                                     { return errEmptySlot }
func (emptySlot) SendGrant(uint64, []lane.Grant, bool) error         { return errEmptySlot }
func (emptySlot) Fetch()                                             {}
func (emptySlot) HasPendingOutput() bool                             { return false }
func (emptySlot) Delivering(bool) bool                               { return false }
func (emptySlot) Stalled() bool                                      { return false }
func (emptySlot) Unsent() int                                        { return 0 }
func (emptySlot) Stop() error                                        { return nil }
func (emptySlot) Drained() bool                                      { return true }
func (emptySlot) Close() error                                       { return nil }

// emptySlotAt returns a lane that fills an unused index below that of l.
func emptySlotAt(l *lane.Lane, index int) *lane.Lane {
	a := lane.New(l.Conn, index, lane.Spec{Port: l.Port, From: l.From, Peer: l.Peer, Weight: l.Weight})
	a.Carrier = emptySlot{}
	a.Deactivate()
	a.Enter(lane.Stopped)
	return a
}
