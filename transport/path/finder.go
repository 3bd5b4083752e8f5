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
	"ncclmesh/transport/topology"
)

// Config is what a Finder works with.
type Config struct {
	Env        *conn.Env
	Ports      []lane.Port             // of this node, by index
	Advertised func() []handshake.Port // what peers are told of them
	// Circuits is the port for circuits of one for queue pairs; others it returns as they are.
	// nil: no circuits.
	Circuits   func(lane.Port) lane.Port
	GIDs       topology.GIDPolicy
	LeftOut    []handshake.Setting // those of this node that leave out ports, for people
	Interfaces topology.IfFilter   // of the control plane
	LaneIfs    topology.IfFilter   // of TCP lanes
	QPsPerPath int
	TCPStreams int // sockets per path; 0 is by its speed

	// Routes are the ways to a peer's node through others, for queue pairs or for sockets, the
	// best first. It may take seconds. Nil: relaying is off.
	Routes func(ctx context.Context, s *control.Session, rdma bool) ([]Route, error)
	// Ends are who answers at the other ends of this node's interfaces, by name, in view of a
	// session's peer. It may block for a moment; if it is thorough, until nobody is asked any more,
	// which may take seconds. Nil: nobody is asked.
	Ends func(s *control.Session, thorough bool) map[string]End
	// Others reports whether a node has been heard of that may relay some day.
	Others    func(s *control.Session) bool
	RouteWait time.Duration // how long such a node is waited for
	OnlyRelay bool          // no direct way to another node is tried
	Node      handshake.NodeID

	NewID func() uint32          // the number of a trial
	Add   func(*conn.Conn) error // makes the peer's messages reach a trial
}

// Finder knows the ways to all peers. Its methods may be called from any goroutine.
type Finder struct {
	Config

	mu        sync.Mutex // a leaf
	known     map[handshake.ProcessID]*pathSet
	answers   map[handshake.ProcessID]*answers
	peerPorts map[*control.Session][]handshake.Port // of peers whose ports have changed
	overTCP   map[string]string                     // by reason, the first peer to which TCP is used for it
	changed   chan struct{}                         // closed, and another one, when a port has changed
}

// NewFinder makes a Finder that knows no way yet.
func NewFinder(c Config) *Finder {
	return &Finder{
		Config: c, known: map[handshake.ProcessID]*pathSet{},
		answers: map[handshake.ProcessID]*answers{}, peerPorts: map[*control.Session][]handshake.Port{},
		overTCP: map[string]string{}, changed: make(chan struct{}),
	}
}

// now are the node's ports as they are.
func (f *Finder) now() []topology.Port { return Now(f.Ports) }

// Now are ports as they were last seen.
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

// PortsOf are the ports of a session's peer, as it last described them. Loopback addresses count only of a peer on this
// machine: those of another machine would lead back to this one.
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

// PeerChanged takes note of what a peer says of its ports. It does not block.
func (f *Finder) PeerChanged(s *control.Session, ports []handshake.Port) {
	f.mu.Lock()
	f.peerPorts[s] = ports
	if s.Dialled() { // paths are known of these
		delete(f.known, s.Peer().Process)
		f.wakeWaiters()
	}
	f.mu.Unlock()
}

// PeerGone forgets a peer whose session has ended. It does not block.
func (f *Finder) PeerGone(s *control.Session) {
	f.mu.Lock()
	delete(f.peerPorts, s)
	if s.Dialled() { // else whose paths they are is only what the peer said
		delete(f.known, s.Peer().Process)
	}
	f.mu.Unlock()
}

// Changed says that a port of this node has changed: all paths are to be proved anew.
func (f *Finder) Changed() {
	f.mu.Lock()
	clear(f.known)
	f.wakeWaiters()
	f.mu.Unlock()
}

// path is a way between a local and a remote port over which packets have been
// seen to pass in both directions.
type validated struct {
	lane.Spec
	pair [2]int // indices of the ports at both ends
}

// pathSet is what is known of the ways to one peer process. A trial finds them
// before the first connection; later ones use them at no cost. What it has not found is to
// be looked for again.
type pathSet struct {
	done  chan struct{} // closed when the trial is over
	over  time.Time     // when it was; read after that
	paths []validated
	say   func() // tells the user why they are not direct, or TCP's
	err   error
}

// To returns the lanes that a connection to the session's peer should have.
// The first caller starts the trial, the others wait for it. A failed trial is
// made again by the next caller, but for those who call a moment later.
func (f *Finder) To(ctx context.Context, s *control.Session) ([]lane.Spec, error) {
	return f.to(ctx, s, func() {})
}

// failed reports whether a trial is over, and may be made again as it has failed.
func (s *pathSet) failed(patience time.Duration) bool {
	select {
	case <-s.done:
		return s.err != nil && time.Since(s.over) >= patience
	default:
		return false
	}
}

// to is To. It calls tick while it waits.
func (f *Finder) to(ctx context.Context, s *control.Session, tick func()) ([]lane.Spec, error) {
	key := s.Peer().Process
	f.mu.Lock()
	set := f.known[key]
	if set == nil || set.failed(f.Env.Scaled(lookAgain)) {
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

// SayWhy tells the user, once for each peer, why a new connection of the session goes
// over TCP, if it does and might not, and through whom.
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

// Forget makes the next connection to the session's peer look anew.
func (f *Finder) Forget(s *control.Session) {
	f.mu.Lock()
	delete(f.known, s.Peer().Process)
	f.mu.Unlock()
}
