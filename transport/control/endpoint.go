package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/lobby"
	"ncclmesh/transport/sock"
)

// Config says who this process is and whom to tell what happens.
type Config struct {
	Process  handshake.ProcessID
	PID      int // by which people know the process on its machine
	Node     handshake.NodeID
	Hostname string

	// Addrs are this process's addresses, the most preferred first. Those that mean nothing to another node are left
	// out: IPv6 link-local ones, and loopback unless there is nothing else.
	Addrs []netip.Addr
	// Ports returns the ports to tell a new peer. Nil: none.
	Ports func() []handshake.Port
	// Settings returns the settings to tell a new peer of, neighbours apart, and to compare with the peer's. Nil: none.
	Settings func() []handshake.Setting
	// Mesh reports whether a local address lies on a mesh interface. When a peer answers on several addresses, one that
	// does not is preferred: the cable that fails must not carry the talk about it. Nil: no address does.
	Mesh func(netip.Addr) bool

	// LaneWait is how long a peer that stays silent is dialled before it counts as dead. 0: 10 s.
	LaneWait time.Duration
	// Clock makes the timers.
	Clock clock.Clock
	// TimeScale multiplies every deadline, for emulated machines. 0: 1.
	TimeScale float64
	// Descriptors is how many descriptors the process may ever have. 0: as many as the kernel says.
	Descriptors uint64
	// Random is what secrets, nonces and numbers are drawn from.
	Random random.Source
	// Log is told what happens. Nil: nobody is.
	Log *slog.Logger

	// Message is called for each message of a session, in order, on the session's own goroutine.
	Message func(s *Session, m handshake.Message)
	// Dead is called once for each session, after its last message. err is nil after an orderly end. It may be called
	// before the Dial that made the session returns it.
	Dead func(s *Session, err error)
	// Differ is called when a process that holds the handle of a listen has dialled and is turned away, because its
	// settings and those of this process must be the same and are not. err is a *SettingsError.
	Differ func(listen uint32, err error)
	// Busy reports whether connections of the session still need its peer. While they do, a silent peer is dialled
	// until LaneWait; otherwise it is given up after one round. Nil: they always do.
	Busy func(s *Session) bool
	// Moved is a number that changes when connections of the session move data. As long as it does a silent peer is not
	// given up: what is lost is the network between the two processes, and not the cables. Nil: it never does.
	Moved func(s *Session) uint64

	// NeighbourSecret authenticates the sessions of neighbours. Nil: they are refused.
	NeighbourSecret *handshake.Secret
	// Cable reports whether neighbours may dial by an interface. It keeps those out who are not at the other end of a cable,
	// where the secret does not. Nil: by none.
	Cable func(netdev string) bool

	// PortRange is the TCP ports to listen at and to dial from. The zero value: any.
	PortRange sock.PortRange
	// Network is where the endpoint listens and dials. Nil: the kernel's.
	Network sock.Network

	bind netip.AddrPort // where to listen; tests choose, the zero value is a port of PortRange everywhere
}

// Deadlines and pauses, before TimeScale.
const (
	laneWait    = 10 * time.Second       // default of Config.LaneWait
	strangerTTL = 10 * time.Second       // for a connection to authenticate itself
	answerWait  = 2 * time.Second        // for a dialled address to connect and speak; for a Welcome
	dialStagger = 100 * time.Millisecond // between the addresses of a new peer
	meshHold    = 100 * time.Millisecond // for an address off the mesh to answer as well
	backStagger = 20 * time.Millisecond  // between the addresses of a known peer
	backGrace   = 150 * time.Millisecond // for the dialling side of a session to come back by itself
	deadGrace   = 200 * time.Millisecond // for another address to contradict a refusal
	minPause    = 20 * time.Millisecond  // between two rounds of dialling, doubled up to
	maxPause    = 320 * time.Millisecond
	byeWait     = time.Second     // for the peer to confirm the end of a session
	silenceWait = 2 * time.Second // for sent bytes to be acknowledged by the peer's kernel (TCP_USER_TIMEOUT)
	probeEvery  = time.Second     // on an idle link (TCP_KEEPIDLE, TCP_KEEPINTVL)
)

// Endpoint is the control plane of one process.
type Endpoint struct {
	cfg     Config
	log     *slog.Logger
	addrs   []netip.Addr
	network sock.Network
	ln      sock.Listener
	port    uint16
	lobby   lobby.Lobby[sock.Conn]
	names   names
	count   counters
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	firstListen uint32 // the number before that of the first listen

	mu       sync.Mutex // taken after Session.mu when both are held
	closing  bool       // nothing new begins
	closed   bool       // no goroutine starts any more
	listens  map[uint32]*Listen
	made     uint32 // listens so far; they are numbered in turn from a random start
	dials    map[target]*attempt
	dialled  map[target]*Session // by whom they lead to, who has proved it with the secret of his listen; neighbours apart
	sessions map[sessionKey]*Session
	offers   map[handshake.SessionID]*offer // whose first frame has not come
	settled  []handshake.Difference         // those that were logged
	cables   map[string]*cable              // by the interfaces over which neighbours have come, or were dialled
}

// sessionKey names an end of a session: of one with itself a process holds both.
//
// Whom an accepted session leads to is only what its peer says. So nothing is looked up by that: a process that has lost
// a session and dials anew has two here until the old one is found dead, and one that lies has one more of its own.
type sessionKey struct {
	id      handshake.SessionID
	dialled bool
}

// New opens the listener.
func New(cfg Config) (*Endpoint, error) {
	if cfg.LaneWait == 0 {
		cfg.LaneWait = laneWait
	}
	if cfg.TimeScale == 0 {
		cfg.TimeScale = 1
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	addrs := reachable(cfg.Addrs)
	if len(addrs) == 0 {
		return nil, fmt.Errorf("control: no interface that is up, and that NCCL_SOCKET_IFNAME selects if it is set, has an address at which another node could reach this one (found %v): give it one, or name another interface", cfg.Addrs)
	}
	e := &Endpoint{
		cfg:      cfg,
		log:      cfg.Log,
		addrs:    addrs,
		network:  sock.On(cfg.Network),
		lobby:    lobby.Lobby[sock.Conn]{Max: limit.Strangers(maxStrangers, cfg.Descriptors), PerSource: maxPerSource, Random: cfg.Random},
		listens:  make(map[uint32]*Listen),
		dials:    make(map[target]*attempt),
		offers:   make(map[handshake.SessionID]*offer),
		dialled:  make(map[target]*Session),
		sessions: make(map[sessionKey]*Session),
		cables:   make(map[string]*cable),
	}
	var err error
	if e.ln, err = e.network.Listen(cfg.bind, "", cfg.PortRange); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	e.port = e.ln.Addr().Port()
	var first [4]byte
	cfg.Random.Fill(first[:], "number of the first listen")
	e.names.note(cfg.Hostname, cfg.Node)
	e.firstListen = binary.BigEndian.Uint32(first[:])
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.spawn(e.accept)
	return e, nil
}

// reachable leaves out what other nodes cannot use, and what exceeds a Hello.
func reachable(addrs []netip.Addr) []netip.Addr {
	var far, near []netip.Addr
	for _, a := range addrs {
		a = a.Unmap()
		switch {
		case handshake.Dialable(a) != nil:
		case a.IsLoopback():
			near = append(near, a)
		default:
			far = append(far, a)
		}
	}
	if len(far) == 0 {
		far = near
	}
	return far[:min(len(far), handshake.MaxAddrs)]
}

// Port returns the port of the listener.
func (e *Endpoint) Port() uint16 { return e.port }

// scaled stretches a deadline on a slow machine.
func (e *Endpoint) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * e.cfg.TimeScale)
}

func (e *Endpoint) ports() []handshake.Port {
	if e.cfg.Ports == nil {
		return nil
	}
	return e.cfg.Ports()
}

// spawn starts a goroutine that Close waits for; it reports false when the endpoint is closed.
func (e *Endpoint) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Go(func() { guard.Run(f, e.caught) })
	return true
}

// caught logs a panic, of which nothing but the loss of a stranger comes.
func (e *Endpoint) caught(p *guard.Panic) { e.log.Error("control: " + p.Report()) }

// addrsFor is where a peer may dial this process: a neighbour only at the address that the session has.
func (e *Endpoint) addrsFor(netdev string) []netip.Addr {
	if netdev != "" {
		return nil
	}
	return e.addrs
}

// add enters a new session.
func (e *Endpoint) add(s *Session) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return net.ErrClosed
	}
	if s.dialled {
		e.dialled[target{s.peer.Process, s.netdev}] = s
	}
	e.sessions[sessionKey{s.id, s.dialled}] = s
	e.wg.Go(func() { guard.Run(s.dispatch, s.caught) })
	return nil
}

// session returns a session of this endpoint, which dialled it or accepted it, or nil.
func (e *Endpoint) session(id handshake.SessionID, dialled bool) *Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[sessionKey{id, dialled}]
}

// remove forgets a session that has ended.
func (e *Endpoint) remove(s *Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if to := (target{s.peer.Process, s.netdev}); e.dialled[to] == s {
		delete(e.dialled, to)
	}
	k := sessionKey{s.id, s.dialled}
	if e.sessions[k] == s {
		delete(e.sessions, k)
		if s.cable != nil && !s.dialled {
			s.cable.accepted--
		}
	}
}

// Close says Bye on every session, once the messages sent before have arrived, and returns when nothing is left. A peer
// that does not confirm delays it by a second.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil
	}
	e.closing = true
	e.forgetOffers()
	e.mu.Unlock()
	sessions := e.Sessions()

	for _, s := range sessions {
		s.bye()
	}
	limit := e.cfg.Clock.NewTimer(e.scaled(byeWait))
	defer limit.Stop()
	expired := false
	for _, s := range sessions {
		if !expired {
			select {
			case <-s.ended:
			case <-limit.C:
				expired = true
			}
		}
		s.end(errUnconfirmed) // no effect on a session that has ended
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	err := e.ln.Close()
	e.lobby.Close()
	e.wg.Wait()
	return err
}

var errUnconfirmed = errors.New("closed before the peer confirmed the end of the session")

// Sessions returns the sessions there are now, of either direction, those with neighbours too, in the order of
// [CompareSessions].
func (e *Endpoint) Sessions() []*Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.sessions), CompareSessions)
}

// CompareSessions orders the sessions of a process, such that what goes through several of them does so in an order that does
// not change.
func CompareSessions(a, b *Session) int {
	if c := bytes.Compare(a.id[:], b.id[:]); c != 0 || a.dialled == b.dialled {
		return c
	}
	if a.dialled { // a session of a process with itself has both ends here
		return -1
	}
	return 1
}
