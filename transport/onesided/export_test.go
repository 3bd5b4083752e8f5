package onesided

// CutAt makes the space cut puts at another size than [conn.MaxPut].
func (s *Space) CutAt(n uint64) { s.mostPut = n }
