package message

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
