package message

import "ncclmesh/transport/lane"

// HeadGrant is the first entry of the grant that a sender waits for, where the peer's
// device writes it.
func HeadGrant(s *SendConn) *lane.Grant { return &s.b.Wire.Slot(s.head)[0] }

// Asked reports whether a sender has asked for grants over a lane since its last eager message.
func Asked(s *SendConn) bool {
	s.b.Lock()
	defer s.b.Unlock()
	return s.eager.sent > 0 && s.eager.asked == s.eager.sent
}

// Keeps reports whether a receiver keeps a grant back.
func Keeps(r *RecvConn) bool {
	r.b.Lock()
	defer r.b.Unlock()
	return !r.stash.kept.none()
}
