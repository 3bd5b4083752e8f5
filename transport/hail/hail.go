package hail

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
)

// UDPPort is where questions are sent to.
const UDPPort = 20045

// What is sent to on a link: an address that IANA keeps for experiments, and one of the transient ones.
var (
	group4 = netip.AddrFrom4([4]byte{224, 0, 0, 254})
	group6 = netip.MustParseAddr("ff12::4e4d")
)

const (
	questions  = 20                     // of the first asking since the ports changed; a later one has one
	fewest     = 3                      // before an asking ends because everybody has been heard
	askEvery   = 100 * time.Millisecond // before TimeScale
	askAgain   = time.Second            // from the end of an asking to the next, before TimeScale
	answerWait = 20 * time.Millisecond  // at most, so that not all answer at once

	maxNodes     = 16 // on one port; more are a switch
	maxProcesses = 16 // of one node on one port

	maxHeard = 5000                  // datagrams a second that are read from one socket; the kernel drops the rest
	maxBurst = maxHeard / 20         // as the kernel keeps about so many
	minPause = 10 * time.Millisecond // so that a flood wakes a goroutine rarely
)

// Port is one that may be hailed on.
type Port struct {
	Index  uint8
	Netdev string // its network interface; a port without one is left out
	RDMA   bool   // an RDMA device's; it speaks for its interface if another port has the same
}

// Neighbour is a process at the other end of a cable. Only who has the hail secret can have said so; the rest of it are
// the neighbour's own words.
type Neighbour struct {
	Port      uint8  // own, Port.Index
	Name      string // of its interface
	Process   handshake.ProcessID
	Node      handshake.NodeID
	Dedicated bool           // it is there for nothing but relaying
	PeerPort  uint8          // Port.Index there
	PeerName  string         // of the interface there
	Control   netip.AddrPort // of its control port, over this cable; a link-local address has its zone
}

// Config says who this process is, and where it may ask.
type Config struct {
	Process     handshake.ProcessID
	Node        handshake.NodeID
	ControlPort uint16
	Dedicated   bool
	Key         []byte // that all nodes share; none: whoever is at the other end of a cable is trusted

	// Ports returns the ports there are now. It is called on the Hailer's goroutine, and by New.
	Ports func() []Port
	// Heard is called when a new neighbour was heard. Nil: nobody is told.
	Heard func()

	// PortRange is the UDP ports to ask from, which answers come back to. The zero value: any.
	PortRange sock.PortRange
	// Network is where the sockets and the interfaces are. Nil: the kernel's.
	Network sock.Network

	// TimeScale multiplies every deadline. 0: 1.
	TimeScale float64
	// Clock makes the timers.
	Clock clock.Clock
	// Random is what nonces, and waits before answers, are drawn from.
	Random random.Source
	// Log is told what happens. Nil: nobody is.
	Log *slog.Logger
}

// Hailer asks and answers for a process.
type Hailer struct {
	cfg     Config
	log     *slog.Logger
	network sock.Network
	secret  handshake.Secret
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	count   counters
	wake    chan struct{} // holds a token when the keeper has to look

	doors map[place]*door // the keeper's

	mu      sync.Mutex // a leaf
	closed  bool
	changes uint64
	changed bool // the keeper has not looked at the ports since they changed
	known   map[uint8]*cable
	asking  *asking   // nil: none
	full    bool      // one has ended since the ports changed,
	all     bool      // which heard somebody on every port,
	ended   time.Time // then
}

// cable is who was heard on a port.
type cable struct {
	processes map[handshake.ProcessID]*Neighbour
	nodes     map[handshake.NodeID]int // and how many of their processes
	crowd     bool                     // more nodes than a cable has ends: nobody is reported
}

// New makes a Hailer, which answers from now on wherever a port is.
func New(cfg Config) (*Hailer, error) {
	switch {
	case cfg.ControlPort == 0:
		return nil, errors.New("neighbour discovery: no control port: neighbours could not dial this process")
	case cfg.Ports == nil:
		return nil, errors.New("neighbour discovery: Config.Ports is nil")
	}
	if cfg.TimeScale == 0 {
		cfg.TimeScale = 1
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Hailer{
		cfg:     cfg,
		log:     cfg.Log,
		network: sock.On(cfg.Network),
		secret:  handshake.HailSecret(cfg.Key),
		wake:    make(chan struct{}, 1),
		doors:   make(map[place]*door),
		known:   make(map[uint8]*cable),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.listen()
	h.wg.Go(func() { guard.Run(h.keep, h.caught) })
	return h, nil
}

// caught logs a panic: what it served is lost.
func (h *Hailer) caught(p *guard.Panic) { h.log.Error("neighbour discovery: " + p.Report()) }

func (h *Hailer) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * h.cfg.TimeScale)
}

// Hail begins to ask: 20 times if the ports have changed since it was last done, else once. It does nothing while that
// goes on, and a second after; nor when somebody has been heard on every port, until the ports change or one is forgotten.
func (h *Hailer) Hail() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.asking != nil || h.full && (h.all || time.Since(h.ended) < h.scaled(askAgain)) {
		return
	}
	h.asking = &asking{done: make(chan struct{}), left: 1}
	if !h.full {
		h.asking.left = questions
	}
	h.poke()
}

// Done is closed when nothing is being asked (any more).
func (h *Hailer) Done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking != nil {
		return h.asking.done
	}
	over := make(chan struct{})
	close(over)
	return over
}

// Neighbours returns who has been heard, by port.
func (h *Hailer) Neighbours() []Neighbour {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Neighbour
	for _, c := range h.known {
		if c.crowd {
			continue
		}
		for _, n := range c.processes {
			all = append(all, *n)
		}
	}
	slices.SortFunc(all, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), bytes.Compare(a.Node[:], b.Node[:]), bytes.Compare(a.Process[:], b.Process[:]))
	})
	return all
}

// Switches returns the ports at which so many nodes answer that Neighbours leaves them out.
func (h *Hailer) Switches() (ports []uint8) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for port, c := range h.known {
		if c.crowd {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports
}

// Forget takes back that a process was heard: it could not be dialled, or has ended. The next Hail asks again, at once. It
// reports whether the process was known.
func (h *Hailer) Forget(p handshake.ProcessID) (known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.known {
		if n := c.processes[p]; n != nil {
			delete(c.processes, p)
			if c.nodes[n.Node]--; c.nodes[n.Node] == 0 {
				delete(c.nodes, n.Node)
			}
			h.all, h.ended, known = false, time.Time{}, true
		}
	}
	return known
}

// Lacks says that somebody may be at a cable who was not heard, as a process of a later job: the next Hail asks, also
// where every port has somebody.
func (h *Hailer) Lacks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = false
}

// Changed says that the ports have: what is known is forgotten, and an asking begins anew.
func (h *Hailer) Changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	clear(h.known)
	h.changes++
	h.changed, h.full, h.all = true, false, false
	h.poke()
}

func (h *Hailer) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Close ends asking and answering. What has been heard stays known.
func (h *Hailer) Close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
	return nil
}

// Stats returns the counters.
func (h *Hailer) Stats() Stats {
	h.count.mu.Lock()
	defer h.count.mu.Unlock()
	s := h.count.stats
	s.Refused = maps.Clone(s.Refused)
	return s
}
