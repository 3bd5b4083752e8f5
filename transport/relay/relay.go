package relay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/control"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/topology"
)

// Limits of the circuits that are relayed for other nodes.
const (
	maxOfSession = 256
	maxOfCable   = 768 // over all sessions of the cable, so that the circuits of other cables have room
	maxCircuits  = 1024
	maxAskers    = 64 // names that Stats returns

	setUpRate  = 200         // circuits per second that are set up for one cable, before scaling
	setUpBurst = maxCircuits // at once, after a quiet time
)

// Waits, before scaling.
const (
	setUpWait   = 10 * time.Second       // for a circuit to come up, from one relay on
	connectWait = 10 * time.Second       // for the previous process to connect to a circuit that is up
	flushWait   = time.Second            // for data in flight when a circuit is dropped
	reasonWait  = 100 * time.Millisecond // for another node's reason, after a socket broke
)

// Config configures a Relay.
type Config struct {
	Log     *slog.Logger // nil: log lines are discarded
	Process handshake.ProcessID
	Node    handshake.NodeID
	Ports   []lane.Port // by index
	GIDs    topology.GIDPolicy
	Data    *dataport.Endpoint // makes circuits of sockets; nil: they are refused
	Verbs   Maker              // makes circuits of queue pairs; nil: they are refused
	Silence time.Duration      // how long a socket's peer may acknowledge nothing; 0: no limit
	Clock   clock.Clock        // makes the timers, and scales the waits
	Random  random.Source      // source of the tokens that authenticate sockets
	Context context.Context    // no circuit is requested or set up after it is done; nil: until Close

	// Neighbour returns the session with a process at the other end of a port's cable. It may block until the context
	// ends.
	Neighbour func(ctx context.Context, process handshake.ProcessID, port uint8) (*control.Session, error)
	// PortsOf returns the current ports of a session's peer. Nil: those that the peer reported when the session began.
	PortsOf func(*control.Session) []handshake.Port
	// NoteWork is called after a circuit that left garbage has ended. The garbage includes descriptors, because the
	// pipes of splices are closed by the collector. Nil: no notification.
	NoteWork func()
	// Refuse returns the reason why this process relays no circuits now, or nil. Nil: it always relays.
	Refuse func() error
	// Changed is called after a relayed circuit came up or ended. It is called with locks held and must not block. Nil:
	// no notification.
	Changed func()
	// Counts are the counters to use. Nil: only Stats shows the counts.
	Counts *stats.Relay
}

// Relay manages the circuits of a process: its own and those it relays. Its methods may be called from any goroutine.
type Relay struct {
	cfg          Config
	log          *slog.Logger
	makers       map[uint8]Maker // by the kind of circuit
	neighbour    func(ctx context.Context, process handshake.ProcessID, port uint8) (session, error)
	portsOf      func(session) []handshake.Port
	ctx          context.Context // of relayed circuits; done at Close
	cancel       context.CancelFunc
	setUpCtx     context.Context // of requests and set-ups
	cancelSetUps context.CancelFunc
	wg           sync.WaitGroup

	splices atomic.Int64 // splices whose goroutine has not ended, also of circuits that are over

	mu        sync.Mutex // a leaf lock
	closed    bool
	checking  bool            // checkLiveness runs
	lastHop   uint32          // number of the last hop
	requested map[key]*hop    // hops that this process has requested
	inbound   map[key]inbound // circuits that peers have requested from this process, by their numbers
	slots     map[session]int // slots in use by each session
	cables    map[cable]int   // slots in use by each cable
	paces     map[cable]*rate.Limiter
	askers    map[string]bool        // names of the neighbours whose circuits have come up since the last time there was none
	expected  map[uint64]expectation // by token
	cancelled []uint64               // tokens of the last cancelled expectations, because their CircuitDeliver may still come
	stats     Stats                  // except what Config.Counts counts
}

var _ lane.Circuits = (*Relay)(nil)

// session is the part of control.Session that circuits need.
type session interface {
	ID() handshake.SessionID
	HopKey() handshake.Key
	Peer() control.Peer
	Cable() string
	Name() string
	LocalName() string
	Send(handshake.Message) error
	Silence() time.Duration
}

// key identifies a hop: its session, and its number, which the requesting side has chosen.
type key struct {
	s session
	n uint32
}

func (k key) compare(other key) int {
	a, b := k.s.ID(), other.s.ID()
	return cmp.Or(bytes.Compare(a[:], b[:]), cmp.Compare(k.n, other.n))
}

// anyKey is a condition for sorted that selects all keys.
func anyKey(key) bool { return true }

// sorted returns the hops or circuits whose keys satisfy the condition, ordered by key, because callers must not depend
// on the order of a map.
func sorted[V any](m map[key]V, which func(key) bool) (some []V) {
	for _, k := range slices.SortedFunc(maps.Keys(m), key.compare) {
		if which(k) {
			some = append(some, m[k])
		}
	}
	return some
}

// inbound is this process's part of a circuit that a peer has requested.
type inbound interface {
	// end ends it. fromPeer reports that the peer ended it, or cannot be notified.
	end(why error, fromPeer bool)
}

// Stats are counters since the Relay was made, and the number of current circuits.
type Stats struct {
	Now         int               // relayed circuits that are in set-up, up, or still forward their last bytes
	Carried     uint64            // circuits that came up
	Askers      []string          // neighbours whose circuits have come up since the last time there was none
	Failed      uint64            // circuits that could not be made
	Refused     map[string]uint64 // requests that were refused, by reason
	Strange     uint64            // messages about unknown circuits
	Forth, Back uint64            // bytes of circuits of sockets, from the sender and towards it
}

// New makes a Relay.
func New(cfg Config) *Relay {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Counts == nil {
		cfg.Counts = new(stats.Relay)
	}
	if cfg.Context == nil {
		cfg.Context = context.Background()
	}
	r := &Relay{
		cfg: cfg, log: cfg.Log, makers: map[uint8]Maker{},
		requested: map[key]*hop{}, inbound: map[key]inbound{}, slots: map[session]int{}, cables: map[cable]int{}, paces: map[cable]*rate.Limiter{}, askers: map[string]bool{}, expected: map[uint64]expectation{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.setUpCtx, r.cancelSetUps = context.WithCancel(cfg.Context)
	if cfg.Data != nil {
		r.makers[handshake.LaneTCP] = &splicer{r: r, data: cfg.Data}
	}
	if cfg.Verbs != nil {
		r.makers[handshake.LaneVerbs] = cfg.Verbs
	}
	r.neighbour = func(ctx context.Context, process handshake.ProcessID, port uint8) (session, error) {
		s, err := cfg.Neighbour(ctx, process, port)
		if err != nil {
			return nil, err // returning s would make a non-nil interface that holds a nil *Session
		}
		return s, nil
	}
	r.portsOf = func(s session) []handshake.Port {
		if c, ok := s.(*control.Session); ok && cfg.PortsOf != nil {
			return cfg.PortsOf(c)
		}
		return s.Peer().Ports
	}
	return r
}

// Message handles a message about circuits. It returns false for any other message. It does not block.
func (r *Relay) Message(s *control.Session, m handshake.Message) bool { return r.message(s, m) }

func (r *Relay) message(s session, m handshake.Message) bool {
	switch m := m.(type) {
	case *handshake.CircuitOpen:
		r.open(s, m)
	case *handshake.CircuitDeliver:
		r.handleDeliver(s, m)
	case *handshake.CircuitOpened:
		if h := r.hopOf(key{s, m.Circuit}); h == nil || !h.handleReply(m) {
			r.countUnknown()
		}
	case *handshake.CircuitStalled:
		r.handleStalled(s, m)
	case *handshake.CircuitClose:
		r.drop(s, m)
	default:
		return false
	}
	return true
}

// drop handles a CircuitClose message.
func (r *Relay) drop(s session, m *handshake.CircuitClose) {
	k, why := key{s, m.Circuit}, &peerError{m.Reason}
	if m.Asker {
		r.mu.Lock()
		c := r.inbound[k]
		r.mu.Unlock()
		if c != nil {
			c.end(why, true)
			return
		}
	} else if h := r.hopOf(k); h != nil {
		h.endedByPeer(why)
		return
	}
	r.countUnknown()
}

// countUnknown counts a message about an unknown circuit.
func (r *Relay) countUnknown() {
	r.mu.Lock()
	r.stats.Strange++
	r.mu.Unlock()
}

// peerError is a reason that another node has sent. Its text names that node.
type peerError struct{ reason string }

func (e *peerError) Error() string { return e.reason }

// reasonOf returns the text of an error for other nodes. An error of this node gets the node's name in front.
func reasonOf(local string, err error) string {
	var peer *peerError
	if errors.As(err, &peer) {
		return err.Error()
	}
	return local + ": " + err.Error()
}

// SessionEnded ends every circuit over a session that has ended.
func (r *Relay) SessionEnded(s *control.Session) { r.sessionEnded(s) }

func (r *Relay) sessionEnded(s session) {
	of := func(k key) bool { return k.s == s }
	r.mu.Lock()
	held, asked := sorted(r.inbound, of), sorted(r.requested, of)
	r.mu.Unlock()
	why := fmt.Errorf("its session with %s has ended", s.Name())
	for _, c := range held {
		c.end(why, true)
	}
	for _, h := range asked {
		h.endedByPeer(why)
	}
}

// Uses reports whether a circuit uses a session.
func (r *Relay) Uses(s *control.Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.inbound {
		if k.s == s {
			return true
		}
	}
	for k := range r.requested {
		if k.s == s {
			return true
		}
	}
	return false
}

// PortDown ends every relayed circuit that uses a port.
func (r *Relay) PortDown(port uint8, why error) {
	r.mu.Lock()
	held := sorted(r.inbound, anyKey)
	r.mu.Unlock()
	for _, h := range held {
		if c, ok := h.(*circuit); ok && (c.ask.Route[0].In == port || c.ask.Route[0].Out == port) {
			c.end(why, false)
		}
	}
}

// Stats returns a copy of the counters.
func (r *Relay) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Refused = maps.Clone(s.Refused)
	s.Askers = slices.Sorted(maps.Keys(r.askers))
	for _, n := range r.slots {
		s.Now += n
	}
	s.Now = max(s.Now, int(r.splices.Load()))
	n := r.cfg.Counts
	s.Carried, s.Failed, s.Forth, s.Back = n.Carried.Load(), n.Failed.Load(), n.Forth.Load(), n.Back.Load()
	return s
}

// Close ends every circuit, and returns when all their resources are released.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	held, asked := sorted(r.inbound, anyKey), sorted(r.requested, anyKey)
	r.inbound, r.requested = map[key]inbound{}, map[key]*hop{}
	clear(r.expected)
	r.mu.Unlock()
	for _, c := range held { // before their set-ups are cancelled, because that would give another reason
		c.end(errClosed, false)
	}
	for _, h := range asked {
		h.drop(reasonOf(h.s.LocalName(), errClosed))
	}
	r.cancelSetUps()
	r.cancel()
	r.wg.Wait()
	return nil
}

// errClosed is the reason for the end of a circuit when the process ends.
var errClosed = errors.New("its process ends")

// cause returns errClosed if a set-up was cancelled because the process ends, otherwise err.
func (r *Relay) cause(err error) error {
	if r.setUpCtx.Err() != nil && errors.Is(err, context.Canceled) {
		return errClosed
	}
	return err
}

// spawn starts a goroutine that Close waits for. It returns false after Close has begun. A panic in f is logged and
// passed to caught.
func (r *Relay) spawn(f func(), caught func(*guard.Panic)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(func() {
		if r.cfg.NoteWork != nil {
			defer r.cfg.NoteWork()
		}
		guard.Run(f, func(p *guard.Panic) {
			r.log.Error("relay: " + p.Report())
			caught(p)
		})
	})
	return true
}
