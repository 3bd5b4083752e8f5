package dataport

import (
	"net"
	"net/netip"
	"sync"
)

// Limits of connections that have not proved themselves. A peer sets the lanes of
// all its connections up at once, so that one address may have many.
const (
	maxStrangers = 512
	maxPerSource = 256
)

// gate keeps strangers within the limits.
type gate struct {
	mu      sync.Mutex
	last    uint64
	inside  map[*stranger]struct{}
	sources map[netip.Addr]int
}

// stranger is a connection that has not proved itself.
type stranger struct {
	conn    *net.TCPConn
	source  netip.AddrPort
	number  uint64 // order of arrival
	evicted bool   // guarded by gate.mu
}

// enter admits a connection, or says why not. In a full house the oldest
// stranger has to go: a peer needs milliseconds, so that a crowd of silent ones
// cannot keep it out.
func (g *gate) enter(c *net.TCPConn) (*stranger, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == nil {
		g.inside, g.sources = map[*stranger]struct{}{}, map[netip.Addr]int{}
	}
	from := source(c)
	if g.sources[from.Addr()] >= maxPerSource {
		return nil, reasonSource
	}
	if len(g.inside) >= maxStrangers {
		var oldest *stranger
		for s := range g.inside {
			if oldest == nil || s.number < oldest.number {
				oldest = s
			}
		}
		g.evictLocked(oldest)
	}
	g.last++
	s := &stranger{conn: c, source: from, number: g.last}
	g.inside[s] = struct{}{}
	g.sources[from.Addr()]++
	return s, ""
}

// leave takes a connection off the list, and reports whether it was evicted.
func (g *gate) leave(s *stranger) (evicted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveLocked(s)
	return s.evicted
}

func (g *gate) leaveLocked(s *stranger) {
	if _, ok := g.inside[s]; !ok {
		return
	}
	delete(g.inside, s)
	if g.sources[s.source.Addr()]--; g.sources[s.source.Addr()] == 0 {
		delete(g.sources, s.source.Addr())
	}
}

func (g *gate) evictLocked(s *stranger) {
	s.evicted = true
	g.leaveLocked(s)
	closeConn(s.conn)
}

func (g *gate) evictAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.inside {
		g.evictLocked(s)
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inside)
}

func source(c *net.TCPConn) netip.AddrPort {
	a := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
