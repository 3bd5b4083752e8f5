package lobby

import (
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"ncclmesh/random"
)

// Lobby is where strangers wait, who have connections of type C. The limits are set before its first use.
type Lobby[C io.Closer] struct {
	Max       int // strangers at once
	PerSource int // of them from one address
	Random    random.Source

	mu     sync.Mutex
	closed bool
	inside map[*Stranger[C]]struct{}
	crowds map[netip.Addr]*crowd[C]
}

// crowd is the strangers of one address.
type crowd[C io.Closer] struct {
	size   int            // all of them
	silent []*Stranger[C] // who may have to go, in no order
}

// Stranger is a connection that has not proved itself.
type Stranger[C io.Closer] struct {
	Conn   C
	Source netip.AddrPort

	place int  // in its crowd's silent ones; -1 once it has been heard. Guarded by Lobby.mu
	fate  Fate // guarded by Lobby.mu
}

// Fate is why a stranger's connection was closed by its Lobby.
type Fate uint8

const (
	Stayed     Fate = 0 // it was not
	OverShare  Fate = 1 // for another one of its address
	OverCrowd  Fate = 2 // for one of any address
	LobbyEnded Fate = 3
)

// Enter admits a connection that comes from source, if another has to go for it. Nil: it cannot come in,
// as all who would have to go have been heard. In a closed Lobby the newcomer is
// turned out at once.
func (l *Lobby[C]) Enter(c C, source netip.AddrPort) *Stranger[C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside == nil {
		l.inside, l.crowds = map[*Stranger[C]]struct{}{}, map[netip.Addr]*crowd[C]{}
	}
	s := &Stranger[C]{Conn: c, Source: source}
	own := l.crowds[s.Source.Addr()]
	switch {
	case own != nil && own.size >= l.PerSource:
		if !l.thinLocked(own, OverShare) {
			return nil
		}
	case len(l.inside) >= l.Max:
		if !l.thinLocked(l.largestLocked(), OverCrowd) {
			return nil
		}
	}
	if own = l.crowds[s.Source.Addr()]; own == nil { // also if its last one has just gone
		own = &crowd[C]{}
		l.crowds[s.Source.Addr()] = own
	}
	s.place = len(own.silent)
	own.silent = append(own.silent, s)
	own.size++
	l.inside[s] = struct{}{}
	if l.closed {
		l.evictLocked(s, LobbyEnded)
	}
	return s
}

// largestLocked is the crowd with most who may have to go; one of several by chance.
func (l *Lobby[C]) largestLocked() *crowd[C] {
	most := 0
	var equal []netip.Addr
	for at, c := range l.crowds {
		switch {
		case len(c.silent) > most:
			most, equal = len(c.silent), append(equal[:0], at)
		case len(c.silent) == most:
			equal = append(equal, at)
		}
	}
	if most == 0 {
		return &crowd[C]{}
	}
	slices.SortFunc(equal, netip.Addr.Compare) // for chance alone to decide, and not the order of a map
	return l.crowds[equal[random.N(l.Random, len(equal), "address of an unauthenticated connection to close")]]
}

// thinLocked turns one of a crowd out, if one may have to go.
func (l *Lobby[C]) thinLocked(c *crowd[C], why Fate) bool {
	if len(c.silent) == 0 {
		return false
	}
	l.evictLocked(c.silent[random.N(l.Random, len(c.silent), "unauthenticated connection to close")], why)
	return true
}

// Heard says that a stranger has said all that it has to, and only waits to be
// judged: it need not go for another any more. It reports false when the stranger
// was turned out before.
func (l *Lobby[C]) Heard(s *Stranger[C]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.inside[s]; !ok {
		return false
	}
	l.hearLocked(s)
	return true
}

func (l *Lobby[C]) hearLocked(s *Stranger[C]) {
	if s.place < 0 {
		return
	}
	c := l.crowds[s.Source.Addr()]
	last := len(c.silent) - 1
	c.silent[s.place] = c.silent[last]
	c.silent[s.place].place = s.place
	c.silent[last], c.silent = nil, c.silent[:last]
	s.place = -1
}

// Leave takes a stranger out, and says why it was turned out, its connection
// closed, if it was. It may be called again.
func (l *Lobby[C]) Leave(s *Stranger[C]) Fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(s)
	return s.fate
}

func (l *Lobby[C]) leaveLocked(s *Stranger[C]) {
	if _, ok := l.inside[s]; !ok {
		return
	}
	l.hearLocked(s)
	delete(l.inside, s)
	c := l.crowds[s.Source.Addr()]
	if c.size--; c.size == 0 {
		delete(l.crowds, s.Source.Addr())
	}
}

func (l *Lobby[C]) evictLocked(s *Stranger[C], why Fate) {
	s.fate = why
	l.leaveLocked(s)
	_ = s.Conn.Close()
}

// Close turns out whoever is inside and whoever comes.
func (l *Lobby[C]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, s := range slices.SortedFunc(maps.Keys(l.inside), func(a, b *Stranger[C]) int { return a.Source.Compare(b.Source) }) {
		l.evictLocked(s, LobbyEnded)
	}
}

// Len is the number of strangers inside.
func (l *Lobby[C]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inside)
}
