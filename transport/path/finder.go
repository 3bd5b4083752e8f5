package path

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/overlay"
	"ncclmesh/transport/topology"
)

// Config holds the dependencies and the options of a Finder.
type Config struct {
	Env        *conn.Env
	Ports      []lane.Port             // of this node, by index
	Advertised func() []handshake.Port // the descriptions of the ports that peers receive
	// Circuits returns the port for circuits that belongs to a port for queue pairs, and any other port
	// unchanged. It is nil if there are no circuits.
	Circuits   func(lane.Port) lane.Port
	GIDs       topology.GIDPolicy
	LeftOut    []handshake.Setting // settings of this node that exclude ports, for messages to the user
	Interfaces topology.IfFilter   // of the control plane
	LaneIfs    topology.IfFilter   // of TCP lanes
	QPsPerPath int
	TCPStreams int // sockets per path; 0 chooses the number by the path's speed

	Overlay   *overlay.Overlay // knows the routes through relays, and the neighbours; nil: relaying is off
	RouteWait time.Duration    // how long to wait for a neighbour to become a relay
	OnlyRelay bool             // do not try direct paths to other nodes
	Node      handshake.NodeID

	NewID func() uint32          // returns the number of the next probe connection
	Add   func(*conn.Conn) error // registers a probe connection, so that the peer's messages reach it
}

// Finder knows the paths to all peers. Its methods may be called from any goroutine.
type Finder struct {
	Config

	mu        sync.Mutex // a leaf
	known     map[handshake.ProcessID]*pathSet
	answers   map[handshake.ProcessID]*answers
	peerPorts map[*control.Session][]handshake.Port // of peers that have sent a changed description
	overTCP   map[string]string                     // for each reason to use TCP, the first peer to which it applied
	changed   chan struct{}                         // closed and replaced when a port changes
}

// NewFinder creates a Finder that knows no path yet.
func NewFinder(c Config) *Finder {
	return &Finder{
		Config: c, known: map[handshake.ProcessID]*pathSet{},
		answers: map[handshake.ProcessID]*answers{}, peerPorts: map[*control.Session][]handshake.Port{},
		overTCP: map[string]string{}, changed: make(chan struct{}),
	}
}

// now returns the present state of the node's ports.
func (f *Finder) now() []topology.Port { return Now(f.Ports) }

// Now returns the last seen state of ports.
func Now(ports []lane.Port) []topology.Port {
	now := make([]topology.Port, len(ports))
	for i, p := range ports {
		now[i] = *p.Now()
	}
	return now
}

func (f *Finder) guarded(what string, do func() error) error {
	return fault.Guarded(f.Env.Log, what, do)
}

// PortsOf returns the ports of a session's peer, as the peer last described them. It keeps loopback addresses
// only for a peer on this machine, because those of another machine would lead back to this one.
func (f *Finder) PortsOf(s *control.Session) []handshake.Port {
	f.mu.Lock()
	ports, changed := f.peerPorts[s]
	f.mu.Unlock()
	if !changed {
		ports = s.Peer().Ports
	}
	if onThisMachine(s) {
		return ports
	}
	return topology.Far(ports)
}

// onThisMachine reports whether a session's peer runs on this machine, in the same network namespace. A TCP connection
// from a machine to itself has one address at both ends, or two loopback ones; node identifiers do not tell, as
// NCCL_HOSTID may differ there.
func onThisMachine(s *control.Session) bool {
	local := s.LocalAddr().Addr()
	return local == s.RemoteAddr().Addr() || local.IsLoopback()
}

// PeerChanged stores a peer's new description of its ports. It does not block.
func (f *Finder) PeerChanged(s *control.Session, ports []handshake.Port) {
	f.mu.Lock()
	f.peerPorts[s] = ports
	if s.Dialled() { // only for dialled sessions are paths kept
		delete(f.known, s.Peer().Process)
		f.wakeWaiters()
	}
	f.mu.Unlock()
}

// PeerGone discards the state of a peer whose session has ended. It does not block.
func (f *Finder) PeerGone(s *control.Session) {
	f.mu.Lock()
	delete(f.peerPorts, s)
	if s.Dialled() { // the process id of any other session is only the peer's claim
		delete(f.known, s.Peer().Process)
	}
	f.mu.Unlock()
}

// Changed discards all paths, because a port of this node has changed.
func (f *Finder) Changed() {
	f.mu.Lock()
	clear(f.known)
	f.wakeWaiters()
	f.mu.Unlock()
}

// validated is a path between a local and a remote port over which packets have passed in both directions.
type validated struct {
	lane.Spec
	pair [2]int // indices of the local and of the remote port
}

// pathSet holds the paths to one peer process. A search fills it before the first connection; later connections
// use it without a search.
type pathSet struct {
	done  chan struct{} // closed when the search has ended
	over  time.Time     // when the search ended; may be read once done is closed
	paths []validated
	say   func() // warns the user why the paths are relayed or over TCP
	err   error
}

// To returns the lanes that a connection to the session's peer should have. The first caller starts a search
// and further callers wait for it. After a failed search, the next caller that comes more than a moment later
// starts another one.
func (f *Finder) To(ctx context.Context, s *control.Session) ([]lane.Spec, error) {
	return f.to(ctx, s, func() {})
}

// failed reports whether the search has failed, at least patience ago.
func (s *pathSet) failed(patience time.Duration) bool {
	select {
	case <-s.done:
		return s.err != nil && time.Since(s.over) >= patience
	default:
		return false
	}
}

// to implements To. It calls tick while it waits.
func (f *Finder) to(ctx context.Context, s *control.Session, tick func()) ([]lane.Spec, error) {
	key := s.Peer().Process
	f.mu.Lock()
	set := f.known[key]
	if set == nil || set.failed(f.Env.Clock.Scaled(lookAgain)) {
		set = &pathSet{done: make(chan struct{})}
		f.known[key] = set
		f.mu.Unlock()
		f.Env.Background(func() {
			set.err = f.guarded("look for paths", func() (err error) {
				set.paths, set.say, err = f.find(s)
				return err
			})
			set.over = time.Now()
			close(set.done)
		})
	} else {
		f.mu.Unlock()
	}
	ticker := f.Env.Clock.NewTicker(clock.LookEvery)
	defer ticker.Stop()
	for done := false; !done; {
		select {
		case <-set.done:
			done = true
		case <-ticker.C:
			tick()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: given up while looking for a path to %s", fault.ErrUsage, s.Name())
		}
	}
	if set.err != nil {
		return nil, set.err
	}
	return f.share(set.paths), nil
}

// SayWhy warns the user, once for each peer, if the paths of the session's connections are relayed, or use TCP
// although RDMA was possible, and why.
func (f *Finder) SayWhy(s *control.Session) {
	f.mu.Lock()
	set := f.known[s.Peer().Process]
	f.mu.Unlock()
	if set == nil {
		return
	}
	select {
	case <-set.done:
		if set.say != nil {
			set.say()
		}
	default:
	}
}

// Forget discards the paths to the session's peer, so that the next connection searches again.
func (f *Finder) Forget(s *control.Session) {
	f.mu.Lock()
	delete(f.known, s.Peer().Process)
	f.mu.Unlock()
}
