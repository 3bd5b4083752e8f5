package accept

import (
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"ncclmesh/random"
	"ncclmesh/transport/limit"
)

// Limiter limits pending connections. Its methods may be called from any goroutine. The limits are set before its first
// use.
type Limiter struct {
	Max       int // pending connections at once
	PerSource int // pending connections from one address
	Random    random.Source

	mu      sync.Mutex
	closed  bool
	pending map[*Pending]struct{}
	sources map[netip.Addr]*sourceConns
}

// acceptors is the number of Acceptors in a process: one for control connections, one for data connections.
const acceptors = 2

// maxPending returns how many connections an Acceptor may have pending: most, or fewer if those of all Acceptors would come
// to a quarter of the descriptors that the process may ever have. descriptors is that number; 0: the kernel's limit.
func maxPending(most int, descriptors uint64) int {
	if descriptors == 0 {
		descriptors = limit.Descriptors()
	}
	quarter := (max(descriptors, 4) - 1) / 4 // stays below it
	return int(max(1, min(uint64(most), quarter/acceptors)))
}

// sourceConns is the pending connections of one address.
type sourceConns struct {
	size      int        // number of all of them
	evictable []*Pending // those that may be evicted, in no order
}

// Pending is a connection that has not authenticated yet.
type Pending struct {
	source netip.AddrPort
	conn   io.Closer

	index    int      // index in sourceConns.evictable; -1 if it may not be evicted. Guarded by Limiter.mu
	eviction Eviction // guarded by Limiter.mu
}

// Eviction is the reason why a Limiter closed a pending connection.
type Eviction uint8

const (
	NotEvicted    Eviction = 0
	SourceFull    Eviction = 1 // closed for another connection of its address
	AllFull       Eviction = 2 // closed for a connection of any address
	LimiterClosed Eviction = 3
)

// Add admits a connection from a source, and evicts another one if a limit requires it. It returns nil if a limit is
// reached and no connection may be evicted. A closed Limiter evicts the new connection at once.
func (l *Limiter) Add(c io.Closer, source netip.AddrPort) *Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending, l.sources = map[*Pending]struct{}{}, map[netip.Addr]*sourceConns{}
	}
	p := &Pending{conn: c, source: source}
	own := l.sources[source.Addr()]
	switch {
	case own != nil && own.size >= l.PerSource:
		if !l.evictOneLocked(own, SourceFull) {
			return nil
		}
	case len(l.pending) >= l.Max:
		if !l.evictOneLocked(l.largestLocked(), AllFull) {
			return nil
		}
	}
	if own = l.sources[source.Addr()]; own == nil { // also if its last connection was just evicted
		own = &sourceConns{}
		l.sources[source.Addr()] = own
	}
	p.index = len(own.evictable)
	own.evictable = append(own.evictable, p)
	own.size++
	l.pending[p] = struct{}{}
	if l.closed {
		l.evictLocked(p, LimiterClosed)
	}
	return p
}

// largestLocked returns the source with the most evictable connections, or a random one of several. It needs Limiter.mu.
func (l *Limiter) largestLocked() *sourceConns {
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
		return &sourceConns{}
	}
	slices.SortFunc(equal, netip.Addr.Compare) // a fixed order, so that the result depends on Random only and not on the order of a map
	return l.sources[equal[random.N(l.Random, len(equal), "address of an unauthenticated connection to close")]]
}

// evictOneLocked evicts a random connection of a source. It returns false if none may be evicted. It needs Limiter.mu.
func (l *Limiter) evictOneLocked(c *sourceConns, why Eviction) bool {
	if len(c.evictable) == 0 {
		return false
	}
	l.evictLocked(c.evictable[random.N(l.Random, len(c.evictable), "unauthenticated connection to close")], why)
	return true
}

// Protect makes a connection stay until Remove or Close, because its peer has sent its whole handshake. It returns false
// if the connection was evicted or removed before.
func (l *Limiter) Protect(p *Pending) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.pending[p]; !ok {
		return false
	}
	l.protectLocked(p)
	return true
}

func (l *Limiter) protectLocked(p *Pending) {
	if p.index < 0 {
		return
	}
	c := l.sources[p.source.Addr()]
	last := len(c.evictable) - 1
	c.evictable[p.index] = c.evictable[last]
	c.evictable[p.index].index = p.index
	c.evictable[last], c.evictable = nil, c.evictable[:last]
	p.index = -1
}

// Remove removes a connection from the Limiter. If the connection was evicted, and so closed, it returns the reason. It
// may be called again.
func (l *Limiter) Remove(p *Pending) Eviction {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(p)
	return p.eviction
}

func (l *Limiter) removeLocked(p *Pending) {
	if _, ok := l.pending[p]; !ok {
		return
	}
	l.protectLocked(p)
	delete(l.pending, p)
	c := l.sources[p.source.Addr()]
	if c.size--; c.size == 0 {
		delete(l.sources, p.source.Addr())
	}
}

func (l *Limiter) evictLocked(p *Pending, why Eviction) {
	p.eviction = why
	l.removeLocked(p)
	_ = p.conn.Close()
}

// Close evicts all pending connections, and all that are added later.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, p := range slices.SortedFunc(maps.Keys(l.pending), func(a, b *Pending) int { return a.source.Compare(b.source) }) {
		l.evictLocked(p, LimiterClosed)
	}
}

// Len returns the number of pending connections.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}
