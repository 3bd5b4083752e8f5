package lobby

import (
	"net"
	"net/netip"
	"sync"

	"ncclmesh/transport/forkfd"
)

// Lobby is where strangers wait. The limits are set before its first use.
type Lobby struct {
	Max       int // strangers at once
	PerSource int // of them from one address

	mu      sync.Mutex
	closed  bool
	last    uint64
	inside  map[*Stranger]struct{}
	sources map[netip.Addr]int
}

// Stranger is a connection that has not proved itself.
type Stranger struct {
	Conn   *net.TCPConn
	Source netip.AddrPort

	number  uint64 // order of arrival
	evicted bool   // guarded by Lobby.mu
}

// Enter admits a connection; nil: its address has its share already. In a closed
// Lobby the newcomer is evicted at once.
func (l *Lobby) Enter(c *net.TCPConn) *Stranger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == nil {
		l.inside, l.sources = map[*Stranger]struct{}{}, map[netip.Addr]int{}
	}
	from := Source(c)
	if l.sources[from.Addr()] >= l.PerSource {
		return nil
	}
	if len(l.inside) >= l.Max {
		var oldest *Stranger
		for s := range l.inside {
			if oldest == nil || s.number < oldest.number {
				oldest = s
			}
		}
		l.evictLocked(oldest)
	}
	l.last++
	s := &Stranger{Conn: c, Source: from, number: l.last}
	l.inside[s] = struct{}{}
	l.sources[from.Addr()]++
	if l.closed {
		l.evictLocked(s)
	}
	return s
}

// Leave takes a stranger out, and reports whether it was evicted, its connection
// closed, meanwhile. It may be called again.
func (l *Lobby) Leave(s *Stranger) (evicted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(s)
	return s.evicted
}

func (l *Lobby) leaveLocked(s *Stranger) {
	if _, ok := l.inside[s]; !ok {
		return
	}
	delete(l.inside, s)
	if l.sources[s.Source.Addr()]--; l.sources[s.Source.Addr()] == 0 {
		delete(l.sources, s.Source.Addr())
	}
}

func (l *Lobby) evictLocked(s *Stranger) {
	s.evicted = true
	l.leaveLocked(s)
	_ = forkfd.Close(s.Conn)
}

// Close evicts whoever is inside and whoever comes.
func (l *Lobby) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for s := range l.inside {
		l.evictLocked(s)
	}
}

// Len is the number of strangers inside.
func (l *Lobby) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inside)
}

// Source is where a connection comes from.
func Source(c *net.TCPConn) netip.AddrPort {
	a := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
