package path

import "ncclmesh/handshake"

const (
	MaxProbes = maxProbes
	MaxQueued = maxQueued
)

// Answering returns how many probe connections of a peer are being answered, and how many are queued.
func (f *Finder) Answering(p handshake.ProcessID) (running, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.answers[p]; a != nil {
		return a.running, len(a.waiting)
	}
	return 0, 0
}

// Knows reports whether the paths to a peer are known or are being searched.
func (f *Finder) Knows(p handshake.ProcessID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[p] != nil
}
