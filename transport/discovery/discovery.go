package discovery

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

// UDPPort is the destination port of queries.
const UDPPort = 20045

// Multicast groups for queries: IPv4 224.0.0.254, which IANA reserves for experiments, and a transient link-local IPv6
// group.
var (
	group4 = netip.AddrFrom4([4]byte{224, 0, 0, 254})
	group6 = netip.MustParseAddr("ff12::4e4d")
)

const (
	maxQueries    = 20                     // queries in the first round after the ports changed; later rounds have one query
	minQueries    = 3                      // queries before a round may end early because a neighbour has answered on every port
	queryInterval = 100 * time.Millisecond // between queries, before scaling
	roundInterval = time.Second            // from the end of a round to the next, before scaling
	maxReplyDelay = 20 * time.Millisecond  // maximum random delay of a reply, so that not all processes answer at once

	maxNodes     = 16 // on one port; if there are more, the port leads to a switch
	maxProcesses = 16 // of one node on one port

	maxRate  = 5000                  // datagrams per second that are read from one socket; the kernel drops the rest
	maxBurst = maxRate / 20          // about the number of datagrams that the kernel's socket buffer holds
	minPause = 10 * time.Millisecond // shorter pauses are skipped, so that a flood rarely wakes a goroutine
)

// Port is a port of this node on which neighbours may be discovered.
type Port struct {
	Index  uint8
	Netdev string // name of its network interface; "": the port is left out
	RDMA   bool   // port of an RDMA device; preferred if several ports share an interface
}

// Neighbour is a process at the other end of a cable. A process without the discovery secret cannot become a neighbour,
// but nothing else verifies the fields that the neighbour reports about itself.
type Neighbour struct {
	Port      uint8  // Port.Index of this node's port
	Name      string // name of this node's interface
	Process   handshake.ProcessID
	Node      handshake.NodeID
	Dedicated bool           // the process only relays
	PeerPort  uint8          // Port.Index of the neighbour's port
	PeerName  string         // name of the neighbour's interface
	Control   netip.AddrPort // address of its control port, over this cable; a link-local address has a zone
}

// Config configures a Discovery.
type Config struct {
	Process     handshake.ProcessID
	Node        handshake.NodeID
	ControlPort uint16
	Dedicated   bool
	Key         []byte // shared by all nodes; nil: every process at the other end of a cable is trusted

	// Ports returns the current ports. New and Ends call it, and the Discovery's goroutine.
	Ports func() []Port
	// OnNeighbour is called after a new neighbour was found. May be nil.
	OnNeighbour func()

	// PortRange is the range of UDP source ports for queries. Replies arrive at these ports. The zero value: any port.
	PortRange sock.PortRange
	// Network provides sockets and interfaces. Nil: those of the kernel.
	Network sock.Network

	// Clock makes the timers, and scales the waits.
	Clock clock.Clock
	// Random is the source of nonces and of the delays of replies.
	Random random.Source
	// Log receives the log lines. Nil: they are discarded.
	Log *slog.Logger
}

// Discovery sends queries and replies for one process. Its methods may be called from any goroutine.
type Discovery struct {
	cfg     Config
	log     *slog.Logger
	network sock.Network
	secret  handshake.Secret
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	count   counters
	wake    chan struct{} // holds a token when run has to look at the ports or at the round

	listeners map[iface]*listener // used by New, and then only by run

	mu          sync.Mutex // a leaf lock
	closed      bool
	changes     uint64 // number of times that the ports changed
	changed     bool   // the ports changed, and run has not looked at them yet
	known       map[uint8]*cable
	round       *round    // the round in progress; nil: none
	roundDone   bool      // a round has ended since the ports changed
	allAnswered bool      // in the last round a neighbour answered on every port whose interface had a carrier
	someDown    bool      // in the last round the interface of a port had no carrier
	roundEnded  time.Time // when the last round ended
}

// cable is the set of neighbours on one port.
type cable struct {
	processes map[handshake.ProcessID]*Neighbour
	nodes     map[handshake.NodeID]int // number of processes of each node
	tooMany   bool                     // more nodes than maxNodes answered: none is reported as a neighbour
}

// New makes a Discovery. It answers queries on the interfaces of all ports until it is closed.
func New(cfg Config) (*Discovery, error) {
	switch {
	case cfg.ControlPort == 0:
		return nil, errors.New("neighbour discovery: no control port: neighbours could not dial this process")
	case cfg.Ports == nil:
		return nil, errors.New("neighbour discovery: Config.Ports is nil")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	disc := &Discovery{
		cfg:       cfg,
		log:       cfg.Log,
		network:   sock.On(cfg.Network),
		secret:    handshake.NeighbourSecret(cfg.Key),
		wake:      make(chan struct{}, 1),
		listeners: make(map[iface]*listener),
		known:     make(map[uint8]*cable),
	}
	disc.ctx, disc.cancel = context.WithCancel(context.Background())
	disc.openListeners()
	disc.wg.Go(func() { guard.Run(disc.run, disc.caught) })
	return disc, nil
}

// caught logs a panic. The goroutine that panicked has ended.
func (disc *Discovery) caught(p *guard.Panic) { disc.log.Error("neighbour discovery: " + p.Report()) }

// Solicit starts a round of queries: 20 queries if no round has ended since the ports changed, otherwise one. It does
// nothing during a round and for one second after it. It also does nothing if a neighbour has answered on every port,
// until the ports change or Forget or ExpectMore is called. An interface that had no carrier when the others had answered
// is looked at again: it may be up since then although nobody has noticed a change.
func (disc *Discovery) Solicit() {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	if disc.closed || disc.round != nil || disc.roundDone && (disc.allAnswered && !disc.someDown || time.Since(disc.roundEnded) < disc.cfg.Clock.Scaled(roundInterval)) {
		return
	}
	disc.round = &round{done: make(chan struct{}), left: 1, looks: disc.allAnswered}
	if !disc.roundDone {
		disc.round.left = maxQueries
	}
	disc.signal()
}

// Done returns a channel that is closed when the round in progress ends. It is closed already if no round is in
// progress.
func (disc *Discovery) Done() <-chan struct{} {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	if disc.round != nil {
		return disc.round.done
	}
	over := make(chan struct{})
	close(over)
	return over
}

// Neighbours returns the discovered neighbours, ordered by port.
func (disc *Discovery) Neighbours() []Neighbour {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	var all []Neighbour
	for _, c := range disc.known {
		if c.tooMany {
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

// Forget removes a process from the neighbours because it could not be dialled or has ended. The next Solicit starts a
// round without delay. Forget reports whether the process was known.
func (disc *Discovery) Forget(p handshake.ProcessID) (known bool) {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	for _, c := range disc.known {
		if n := c.processes[p]; n != nil {
			delete(c.processes, p)
			if c.nodes[n.Node]--; c.nodes[n.Node] == 0 {
				delete(c.nodes, n.Node)
			}
			disc.allAnswered, disc.roundEnded, known = false, time.Time{}, true
		}
	}
	return known
}

// ExpectMore tells the Discovery that a neighbour may be missing, for example a process of a job that started later.
// The next Solicit then starts a round even if a neighbour has answered on every port.
func (disc *Discovery) ExpectMore() {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	disc.allAnswered = false
}

// Changed tells the Discovery that the ports have changed. It forgets all neighbours, and a round in progress starts
// again.
func (disc *Discovery) Changed() {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	if disc.closed {
		return
	}
	clear(disc.known)
	disc.changes++
	disc.changed, disc.roundDone, disc.allAnswered = true, false, false
	disc.signal()
}

func (disc *Discovery) signal() {
	select {
	case disc.wake <- struct{}{}:
	default:
	}
}

// Close stops queries and replies. The discovered neighbours stay known.
func (disc *Discovery) Close() error {
	disc.mu.Lock()
	disc.closed = true
	disc.mu.Unlock()
	disc.cancel()
	disc.wg.Wait()
	return nil
}

// Stats returns a copy of the counters.
func (disc *Discovery) Stats() Stats {
	disc.count.mu.Lock()
	defer disc.count.mu.Unlock()
	s := disc.count.stats
	s.Refused = maps.Clone(s.Refused)
	return s
}
