package lobby

import (
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"ncclmesh/random"
)

// Lobby limits pending connections of type C. The limits are set before its first use.
type Lobby[C io.Closer] struct {
	Max       int // pending connections at once
	PerSource int // pending connections from one address
	Random    random.Source

	mu      sync.Mutex
	closed  bool
	pending map[*Stranger[C]]struct{}
	sources map[netip.Addr]*sourceConns[C]
}

// sourceConns is the pending connections of one address.
type sourceConns[C io.Closer] struct {
	size      int            // number of all of them
	evictable []*Stranger[C] // those that may be evicted, in no order
}

// Stranger is a pending connection: one that has not authenticated yet.
type Stranger[C io.Closer] struct {
	Conn   C
	Source netip.AddrPort

	index    int  // index in sourceConns.evictable; -1 if it may not be evicted. Guarded by Lobby.mu
	eviction Fate // guarded by Lobby.mu
}

// Fate is the reason why a Lobby evicted a pending connection.
type Fate uint8

const (
	Stayed     Fate = 0 // it was not evicted
	OverShare  Fate = 1 // evicted for another connection of its address
	OverCrowd  Fate = 2 // evicted for a connection of any address
	LobbyEnded Fate = 3
)

// Enter admits a connection from a source, and evicts another one if a limit requires it. It returns nil if a limit is
// reached and no connection may be evicted. A closed Lobby evicts the new connection at once.
func (l *Lobby[C]) Enter(c C, source netip.AddrPort) *Stranger[C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending, l.sources = map[*Stranger[C]]struct{}{}, map[netip.Addr]*sourceConns[C]{}
	}
	s := &Stranger[C]{Conn: c, Source: source}
	own := l.sources[s.Source.Addr()]
	switch {
	case own != nil && own.size >= l.PerSource:
		if !l.evictOneLocked(own, OverShare) {
			return nil
		}
	case len(l.pending) >= l.Max:
		if !l.evictOneLocked(l.largestLocked(), OverCrowd) {
			return nil
		}
	}
	if own = l.sources[s.Source.Addr()]; own == nil { // also if its last connection was just evicted
		own = &sourceConns[C]{}
		l.sources[s.Source.Addr()] = own
	}
	s.index = len(own.evictable)
	own.evictable = append(own.evictable, s)
	own.size++
	l.pending[s] = struct{}{}
	if l.closed {
		l.evictLocked(s, LobbyEnded)
	}
	return s
}

// largestLocked returns the source with the most evictable connections, or a random one of several. It needs Lobby.mu.
func (l *Lobby[C]) largestLocked() *sourceConns[C] {
	most := 0
	var equal []netip.Addr
	for at, c := range l.sources {
		switch {
		case len(c.evictable) > most:
			most, equal = len(c.evictable), append(equal[:0], at)
		case len(c.evictable) == most:
			equal = append(equal, at)
		}
	}
	if most == 0 {
		return &sourceConns[C]{}
	}
	slices.SortFunc(equal, netip.Addr.Compare) // a fixed order, so that the result depends on Random only and not on the order of a map
	return l.sources[equal[random.N(l.Random, len(equal), "address of an unauthenticated connection to close")]]
}

// evictOneLocked evicts a random connection of a source. It returns false if none may be evicted. It needs Lobby.mu.
func (l *Lobby[C]) evictOneLocked(c *sourceConns[C], why Fate) bool {
	if len(c.evictable) == 0 {
		return false
	}
	l.evictLocked(c.evictable[random.N(l.Random, len(c.evictable), "unauthenticated connection to close")], why)
	return true
}

// Heard marks a connection whose peer has sent its whole handshake, so that it is not evicted any more. It returns
// false if the connection was evicted before.
func (l *Lobby[C]) Heard(s *Stranger[C]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.pending[s]; !ok {
		return false
	}
	l.protectLocked(s)
	return true
}

func (l *Lobby[C]) protectLocked(s *Stranger[C]) {
	if s.index < 0 {
		return
	}
	c := l.sources[s.Source.Addr()]
	last := len(c.evictable) - 1
	c.evictable[s.index] = c.evictable[last]
	c.evictable[s.index].index = s.index
	c.evictable[last], c.evictable = nil, c.evictable[:last]
	s.index = -1
}

// Leave removes a connection from the Lobby. If the connection was evicted, and so closed, it returns the reason. It
// may be called again.
func (l *Lobby[C]) Leave(s *Stranger[C]) Fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(s)
	return s.eviction
}

func (l *Lobby[C]) releaseLocked(s *Stranger[C]) {
	if _, ok := l.pending[s]; !ok {
		return
	}
	l.protectLocked(s)
	delete(l.pending, s)
	c := l.sources[s.Source.Addr()]
	if c.size--; c.size == 0 {
		delete(l.sources, s.Source.Addr())
	}
}

func (l *Lobby[C]) evictLocked(s *Stranger[C], why Fate) {
	s.eviction = why
	l.releaseLocked(s)
	_ = s.Conn.Close()
}

// Close evicts all pending connections, and all that enter later.
func (l *Lobby[C]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, s := range slices.SortedFunc(maps.Keys(l.pending), func(a, b *Stranger[C]) int { return a.Source.Compare(b.Source) }) {
		l.evictLocked(s, LobbyEnded)
	}
}

// Len returns the number of pending connections.
func (l *Lobby[C]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}
