package message

import (
	"ncclmesh/transport/lane"
)

// HeadGrant is the first entry of the grant that a sender waits for, where the peer's
// device writes it.
func HeadGrant(s *SendConn) *lane.Grant { return &s.b.Wire.Slot(s.head)[0] }
