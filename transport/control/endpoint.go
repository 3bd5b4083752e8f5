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
	"ncclmesh/transport/accept"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
)

// Config configures an Endpoint.
type Config struct {
	Process  handshake.ProcessID
	PID      int // the process's ID on its machine, for log lines
	Node     handshake.NodeID
	Hostname string

	// Addrs are this process's addresses, the most preferred first. Addresses without meaning on another node are
	// ignored: IPv6 link-local ones, and loopback unless there are no others.
	Addrs []netip.Addr
	// Ports returns the ports to report to a new peer. Nil: none.
	Ports func() []handshake.Port
	// Settings returns the settings to send to a new peer that is no neighbour, and to compare with its settings. Nil:
	// none.
	Settings func() []handshake.Setting
	// Mesh reports whether a local address is on a mesh interface. If a peer answers on several addresses, one outside
	// the mesh is preferred, because the control plane must survive the failure of a mesh cable. Nil: no address is.
	Mesh func(netip.Addr) bool

	// LaneWait is how long a silent peer is dialled before it counts as dead. 0: 10 s.
	LaneWait time.Duration
	// Clock makes the timers, and scales the waits.
	Clock clock.Clock
	// Descriptors is the limit of the process's descriptors. 0: the kernel's limit.
	Descriptors uint64
	// Random is the source of secrets, nonces and IDs.
	Random random.Source
	// Log receives the log lines. Nil: they are discarded.
	Log *slog.Logger

	// Message is called for each message of a session, in order, on the session's own goroutine.
	Message func(s *Session, m handshake.Message)
	// Dead is called once for each session, after its last message. err is nil after an orderly end. It may be called
	// before the Dial that made the session returns it.
	Dead func(s *Session, err error)
	// Differ is called after a process that has the handle of a listen has dialled and was refused, because settings
	// that must be equal differ. err is a *SettingsError.
	Differ func(listen uint32, err error)
	// Busy reports whether the peer of the session is still needed. While it is, a silent peer is dialled until
	// LaneWait; otherwise it is given up after one round. Nil: it always is.
	Busy func(s *Session) bool
	// Moved returns a number that changes when connections of the session move data. While it changes, a silent peer is
	// not given up, because then only the control network between the two processes has failed, and not the cables.
	// Nil: it never changes.
	Moved func(s *Session) uint64

	// NeighbourSecret authenticates the sessions of neighbours. Nil: they are refused.
	NeighbourSecret *handshake.Secret
	// Cable reports whether neighbours may connect on an interface. It excludes peers that are not at the other end of
	// a cable, which a public secret cannot exclude. Nil: on no interface.
	Cable func(netdev string) bool

	// PortRange is the range of TCP ports to listen on and to dial from. The zero value: any port.
	PortRange sock.PortRange
	// Network is the network to listen and dial on. Nil: the kernel's.
	Network sock.Network

	bind netip.AddrPort // address to listen on, set by tests; the zero value: all addresses, a port of PortRange
}

// Deadlines and pauses, before scaling.
const (
	laneWait          = 10 * time.Second       // default of Config.LaneWait
	authTimeout       = 10 * time.Second       // for a connection to authenticate
	replyTimeout      = 2 * time.Second        // for a dialled address to connect and send its challenge; for a Welcome
	dialStagger       = 100 * time.Millisecond // between dialling two addresses of a new peer
	meshHold          = 100 * time.Millisecond // for an address outside the mesh to answer too
	redialStagger     = 20 * time.Millisecond  // between dialling two addresses of a known peer
	redialGrace       = 150 * time.Millisecond // for the dialling side of a session to resume it first
	deadGrace         = 200 * time.Millisecond // for another address to contradict a refusal
	minPause          = 20 * time.Millisecond  // between two rounds of dialling, doubled up to
	maxPause          = 320 * time.Millisecond
	byeWait           = time.Second     // for the peer to confirm the end of a session
	ackTimeout        = 2 * time.Second // for the peer's kernel to acknowledge sent bytes (TCP_USER_TIMEOUT)
	keepAliveInterval = time.Second     // on an idle link (TCP_KEEPIDLE, TCP_KEEPINTVL)
)

// Endpoint is the control plane of one process.
type Endpoint struct {
	cfg      Config
	log      *slog.Logger
	addrs    []netip.Addr
	network  sock.Network
	acceptor *accept.Acceptor
	port     uint16
	names    names
	count    counters
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	firstListen uint32 // ID of the first listen, minus 1

	mu          sync.Mutex // taken after Session.mu when both are held
	closing     bool       // no new session or listen is made
	closed      bool       // no goroutine is started
	listens     map[uint32]*Listen
	made        uint32 // listens made so far; their IDs count up from a random start
	dials       map[target]*attempt
	dialled     map[target]*Session // sessions that this side dialled, by the process that they lead to, which the handshake has authenticated
	sessions    map[sessionKey]*Session
	offers      map[handshake.SessionID]*offer // offers whose first frame has not arrived
	differences []handshake.Difference         // differences that were logged
	cables      map[string]*cable              // by the interfaces on which neighbours have connected or were dialled
}

// sessionKey identifies one end of a session. A process that has a session with itself holds both ends.
//
// The Process of an accepted session's peer is not verified. Therefore accepted sessions are not looked up by it. A
// process that has lost a session and dials a new one has two here until the old one is found dead, and a process that
// lies only has one more of its own.
type sessionKey struct {
	id      handshake.SessionID
	dialled bool
}

// New opens the listener and starts to accept connections.
func New(cfg Config) (*Endpoint, error) {
	if cfg.LaneWait == 0 {
		cfg.LaneWait = laneWait
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
		listens:  make(map[uint32]*Listen),
		dials:    make(map[target]*attempt),
		offers:   make(map[handshake.SessionID]*offer),
		dialled:  make(map[target]*Session),
		sessions: make(map[sessionKey]*Session),
		cables:   make(map[string]*cable),
	}
	ln, err := e.network.Listen(cfg.bind, "", cfg.PortRange)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	e.port = ln.Addr().Port()
	var first [4]byte
	cfg.Random.Fill(first[:], "number of the first listen")
	e.names.add(cfg.Hostname, cfg.Node)
	e.firstListen = binary.BigEndian.Uint32(first[:])
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.acceptor = accept.New(accept.Config{
		Name: "control", Handshake: e.authenticate, Timeout: authTimeout, MaxPending: maxPending, PerSource: maxPerSource,
		Descriptors: cfg.Descriptors, Clock: cfg.Clock, Random: cfg.Random, Log: cfg.Log,
	})
	if err := e.acceptor.Serve(ln); err != nil {
		return nil, err
	}
	return e, nil
}

// reachable returns the addresses that other nodes can use, at most as many as fit a Hello.
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

func (e *Endpoint) ports() []handshake.Port {
	if e.cfg.Ports == nil {
		return nil
	}
	return e.cfg.Ports()
}

// spawn starts a goroutine that Close waits for. It returns false if the endpoint is closed.
func (e *Endpoint) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Go(func() { guard.Run(f, e.caught) })
	return true
}

// caught logs a panic of a goroutine that serves no session.
func (e *Endpoint) caught(p *guard.Panic) { e.log.Error("control: " + p.Report()) }

// addrsFor returns the addresses at which a peer may dial this process. A neighbour gets none, because it may use only
// the address of the session.
func (e *Endpoint) addrsFor(netdev string) []netip.Addr {
	if netdev != "" {
		return nil
	}
	return e.addrs
}

// add registers a new session and starts its goroutine.
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

// session returns the end of a session that this process dialled or accepted, or nil.
func (e *Endpoint) session(id handshake.SessionID, dialled bool) *Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[sessionKey{id, dialled}]
}

// remove unregisters a session that has ended.
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

// Close sends Bye on every session after the messages that were sent before, and returns when all sessions and
// goroutines have ended. It waits at most a second for peers that do not confirm.
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
	limit := e.cfg.Clock.NewTimer(e.cfg.Clock.Scaled(byeWait))
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
	err := e.acceptor.Close()
	e.wg.Wait()
	return err
}

var errUnconfirmed = errors.New("closed before the peer confirmed the end of the session")

// Sessions returns all current sessions, of either direction and with neighbours too, ordered by [CompareSessions].
func (e *Endpoint) Sessions() []*Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.sessions), CompareSessions)
}

// CompareSessions defines a fixed order of the sessions of a process.
func CompareSessions(a, b *Session) int {
	if c := bytes.Compare(a.id[:], b.id[:]); c != 0 || a.dialled == b.dialled {
		return c
	}
	if a.dialled { // a process that has a session with itself holds both ends
		return -1
	}
	return 1
}
