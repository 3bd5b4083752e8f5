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

// Limits of what is carried for others.
const (
	maxOfSession = 256
	maxOfCable   = 768 // however many sessions there are over it: others keep a place
	maxCircuits  = 1024
	maxAskers    = 64 // that are told of

	setUpRate  = 200         // circuits a second that are set up for one cable, before TimeScale
	setUpBurst = maxCircuits // at once, after few
)

// Waits, before TimeScale.
const (
	setUpWait  = 10 * time.Second       // for a circuit to stand, from one relay on
	comeWait   = 10 * time.Second       // for the asker of one that stands to use it
	grace      = time.Second            // for what is under way when it is dropped
	reasonWait = 100 * time.Millisecond // for another node to say why a socket broke
)

// Config says who this process is, and what it carries with.
type Config struct {
	Log       *slog.Logger // nil: nobody is told
	Process   handshake.ProcessID
	Node      handshake.NodeID
	Ports     []lane.Port // by index
	GIDs      topology.GIDPolicy
	Data      *dataport.Endpoint // what sockets are carried with; nil: they are not
	Verbs     Maker              // what queue pairs are; nil: they are not
	Silence   time.Duration      // how long a socket's other end may acknowledge nothing; 0: for ever
	TimeScale float64            // multiplies every deadline; 0: 1
	Clock     clock.Clock        // makes the timers
	Random    random.Source      // of what sockets prove themselves with
	Context   context.Context    // nothing is asked or set up once it has ended; nil: until Close

	// Neighbour is the session with a process at the other end of a port's cable. It may
	// block until the context ends.
	Neighbour func(ctx context.Context, process handshake.ProcessID, port uint8) (*control.Session, error)
	// PortsOf is what the peer of a session has told of its ports. Nil: as it did at first.
	PortsOf func(*control.Session) []handshake.Port
	// Worked is called when something has ended that left garbage behind, descriptors among
	// it: the pipes of splices are kept until they are collected. Nil: nobody collects.
	Worked func()
	// Refuse says why nothing is carried for others now, or nil; nil: it always is.
	Refuse func() error
	// Changed is called when a circuit that is carried for others stands or is gone, with
	// mutexes held: it may not block. Nil: nobody is told.
	Changed func()
	// Counts is where to count; nil: where only Stats looks.
	Counts *stats.Relay
}

// Relay is a process's part in circuits: its own and others'. Its methods may be called
// from any goroutine.
type Relay struct {
	cfg       Config
	log       *slog.Logger
	makers    map[uint8]Maker // by the kind of hops
	neighbour func(ctx context.Context, process handshake.ProcessID, port uint8) (session, error)
	portsOf   func(session) []handshake.Port
	ctx       context.Context // until Close, for what is carried
	cancel    context.CancelFunc
	begin     context.Context // of what is asked and set up
	noMore    context.CancelFunc
	wg        sync.WaitGroup

	splices atomic.Int64 // that are not through yet, also of circuits that have ended

	mu       sync.Mutex // a leaf
	closed   bool
	vigil    bool            // relays are asked for signs of life
	last     uint32          // number of a hop
	asked    map[key]*hop    // of others
	held     map[key]holder  // for others, by the numbers that they have given
	slots    map[session]int // circuits of each session that take a place
	cables   map[cable]int   // and of each cable over which they come in
	paces    map[cable]*rate.Limiter
	askers   map[string]bool        // by name, of those that stand, and that have since there was none
	expected map[uint64]expectation // by token
	late     []uint64               // tokens of the last maxLate lanes that were given up: what was asked for then may yet come
	stats    Stats                  // but for what Config.Counts counts
}

var _ lane.Circuits = (*Relay)(nil)

// session is as much of a control.Session as circuits need.
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

// key names a hop: its session, and the number that its asker has given it there.
type key struct {
	s session
	n uint32
}

func (k key) compare(other key) int {
	a, b := k.s.ID(), other.s.ID()
	return cmp.Or(bytes.Compare(a[:], b[:]), cmp.Compare(k.n, other.n))
}

// every is which keys: all.
func every(key) bool { return true }

// inOrder returns those of some hops or circuits whose keys are wanted, ordered by their keys: what follows must not depend on
// the order of a map.
func inOrder[V any](m map[key]V, which func(key) bool) (some []V) {
	for _, k := range slices.SortedFunc(maps.Keys(m), key.compare) {
		if which(k) {
			some = append(some, m[k])
		}
	}
	return some
}

// holder is this process's part of a circuit that a peer has asked for.
type holder interface {
	// end ends it; heard says that the peer has said so, or cannot be told.
	end(why error, heard bool)
}

// Stats are counts since the Relay was made, and what there is now.
type Stats struct {
	Now         int               // circuits that this process carries for others, or begins to, or whose last bytes are under way
	Carried     uint64            // that have stood
	Askers      []string          // the neighbours that asked for those there are, and have since there was none
	Failed      uint64            // that could not be made
	Refused     map[string]uint64 // that were not begun, by reason
	Strange     uint64            // messages about circuits that there are not
	Forth, Back uint64            // bytes of sockets, from the asker and to it
}

// New makes a Relay.
func New(cfg Config) *Relay {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.TimeScale == 0 {
		cfg.TimeScale = 1
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
		asked: map[key]*hop{}, held: map[key]holder{}, slots: map[session]int{}, cables: map[cable]int{}, paces: map[cable]*rate.Limiter{}, askers: map[string]bool{}, expected: map[uint64]expectation{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.begin, r.noMore = context.WithCancel(cfg.Context)
	if cfg.Data != nil {
		r.makers[handshake.LaneTCP] = &splicer{r: r, data: cfg.Data}
	}
	if cfg.Verbs != nil {
		r.makers[handshake.LaneVerbs] = cfg.Verbs
	}
	r.neighbour = func(ctx context.Context, process handshake.ProcessID, port uint8) (session, error) {
		s, err := cfg.Neighbour(ctx, process, port)
		if err != nil {
			return nil, err // not a session that is no nil
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

// Message takes a message about circuits; it reports false when it is about something
// else. It does not block.
func (r *Relay) Message(s *control.Session, m handshake.Message) bool { return r.message(s, m) }

func (r *Relay) message(s session, m handshake.Message) bool {
	switch m := m.(type) {
	case *handshake.Carry:
		r.take(s, m)
	case *handshake.Arrive:
		r.arrived(s, m)
	case *handshake.Carried:
		if h := r.hopOf(key{s, m.Circuit}); h == nil || !h.answered(m) {
			r.strange()
		}
	case *handshake.Silent:
		r.heard(s, m)
	case *handshake.Drop:
		r.drop(s, m)
	default:
		return false
	}
	return true
}

// drop takes a Drop.
func (r *Relay) drop(s session, m *handshake.Drop) {
	k, why := key{s, m.Circuit}, &saidError{m.Reason}
	if m.Asker {
		r.mu.Lock()
		c := r.held[k]
		r.mu.Unlock()
		if c != nil {
			c.end(why, true)
			return
		}
	} else if h := r.hopOf(k); h != nil {
		h.lost(why)
		return
	}
	r.strange()
}

// strange counts a message about a circuit that there is not.
func (r *Relay) strange() {
	r.mu.Lock()
	r.stats.Strange++
	r.mu.Unlock()
}

// saidError is a reason that another node has given: it names that node.
type saidError struct{ reason string }

func (e *saidError) Error() string { return e.reason }

// reasonOf is what others are told of an error: of this node's own, with its name.
func reasonOf(local string, err error) string {
	var said *saidError
	if errors.As(err, &said) {
		return err.Error()
	}
	return local + ": " + err.Error()
}

// Gone ends every circuit over a session that has ended.
func (r *Relay) Gone(s *control.Session) { r.gone(s) }

func (r *Relay) gone(s session) {
	of := func(k key) bool { return k.s == s }
	r.mu.Lock()
	held, asked := inOrder(r.held, of), inOrder(r.asked, of)
	r.mu.Unlock()
	why := fmt.Errorf("its session with %s has ended", s.Name())
	for _, c := range held {
		c.end(why, true)
	}
	for _, h := range asked {
		h.lost(why)
	}
}

// Uses reports whether a circuit goes over a session.
func (r *Relay) Uses(s *control.Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.held {
		if k.s == s {
			return true
		}
	}
	for k := range r.asked {
		if k.s == s {
			return true
		}
	}
	return false
}

// PortDown ends every circuit that is carried for others over a port.
func (r *Relay) PortDown(port uint8, why error) {
	r.mu.Lock()
	held := inOrder(r.held, every)
	r.mu.Unlock()
	for _, h := range held {
		if c, ok := h.(*circuit); ok && (c.ask.Route[0].In == port || c.ask.Route[0].Out == port) {
			c.end(why, false)
		}
	}
}

// Stats returns the counters.
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

// Close ends every circuit, and returns when nothing of them is left.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	held, asked := inOrder(r.held, every), inOrder(r.asked, every)
	r.held, r.asked = map[key]holder{}, map[key]*hop{}
	clear(r.expected)
	r.mu.Unlock()
	for _, c := range held { // before their set-ups are cancelled, which would give another reason
		c.end(errClosed, false)
	}
	for _, h := range asked {
		h.drop(reasonOf(h.s.LocalName(), errClosed))
	}
	r.noMore()
	r.cancel()
	r.wg.Wait()
	return nil
}

// errClosed is why everything ends.
var errClosed = errors.New("its process ends")

// cause returns why a set-up failed with an error: what has cancelled it is the end of the process, where that has begun.
func (r *Relay) cause(err error) error {
	if r.begin.Err() != nil && errors.Is(err, context.Canceled) {
		return errClosed
	}
	return err
}

// spawn starts a goroutine that Close waits for; it reports false once Close has begun.
// A panic in f becomes caught's.
func (r *Relay) spawn(f func(), caught func(*guard.Panic)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(func() {
		if r.cfg.Worked != nil {
			defer r.cfg.Worked()
		}
		guard.Run(f, func(p *guard.Panic) {
			r.log.Error("relay: " + p.Report())
			caught(p)
		})
	})
	return true
}

// scaled stretches a deadline on a slow machine.
func (r *Relay) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * r.cfg.TimeScale)
}
