package dataport

import (
	"context"
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

// Config says how an Endpoint behaves.
type Config struct {
	// KeepAlive is how long the kernel waits for signs of life of an idle peer.
	KeepAlive time.Duration
	// PortRange is the TCP ports to listen at and to dial from. The zero value: any.
	PortRange sock.PortRange
	// Network is where the endpoint listens and dials. Nil: the kernel's.
	Network sock.Network
	// Clock makes the timers.
	Clock clock.Clock
	// TimeScale multiplies every deadline. 0: 1.
	TimeScale float64
	// Descriptors is how many descriptors the process may ever have. 0: as many as the kernel says.
	Descriptors uint64
	// Random decides whom a crowd of strangers costs a place.
	Random random.Source
	// Log is told what happens. Nil: nobody is.
	Log *slog.Logger
}

// End is one end of a lane: what its two sides have agreed on over the session,
// and where this one is.
type End struct {
	Name   handshake.LaneName
	Key    handshake.Key
	Tokens handshake.LaneTokens
	Addr   netip.Addr // own address; a link-local one with its zone
	Netdev string     // own interface; "" is any

	// Reached, if not nil, is told by Dial when the other side's kernel has
	// answered, so that only its process is waited for, and when that was in vain.
	Reached func(bool)
}

// Endpoint is a process's end of all its TCP lanes.
type Endpoint struct {
	cfg     Config
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	lobby   lobby.Lobby[sock.Conn]
	network sock.Network

	mu        sync.Mutex
	closed    bool
	listeners map[place]sock.Listener
	expected  map[handshake.LaneName]*Call
	stats     Stats
	lacked    error  // what this node ran out of last, and
	lacks     uint64 // how often it has
}

// place is where a listener is.
type place struct {
	addr   netip.Addr
	netdev string
}

// Stats are counts since the Endpoint was made, and what is open now.
type Stats struct {
	Dialled  uint64            // lanes dialled
	Accepted uint64            // lanes accepted
	Refused  map[string]uint64 // connections refused, by reason
	Expected int               // lanes that have not come yet
	Inside   int               // connections that have not proved themselves
}

// New makes an Endpoint. It listens nowhere yet.
func New(cfg Config) *Endpoint {
	if cfg.TimeScale == 0 {
		cfg.TimeScale = 1
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{
		cfg:       cfg,
		log:       cfg.Log,
		network:   sock.On(cfg.Network),
		lobby:     lobby.Lobby[sock.Conn]{Max: limit.Strangers(maxStrangers, cfg.Descriptors), PerSource: maxPerSource, Random: cfg.Random},
		listeners: map[place]sock.Listener{},
		expected:  map[handshake.LaneName]*Call{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Listen returns the TCP port at which lanes to an address of an interface are
// accepted. The first call for an address opens the listener, which stays.
func (e *Endpoint) Listen(addr netip.Addr, netdev string) (uint16, error) {
	at := place{addr.Unmap(), netdev}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, net.ErrClosed
	}
	ln := e.listeners[at]
	if ln == nil {
		var err error
		if ln, err = e.network.Listen(netip.AddrPortFrom(at.addr, 0), at.netdev, e.cfg.PortRange); err != nil {
			return 0, fmt.Errorf("listen for lanes at %v on %s: %w", addr, netdev, err)
		}
		e.listeners[at] = ln
		e.wg.Go(func() { guard.Run(func() { e.accept(ln) }, e.caught) })
	}
	return ln.Addr().Port(), nil
}

// caught logs a panic: the connection or the listener that it served is lost.
func (e *Endpoint) caught(p *guard.Panic) { e.log.Error("data port: " + p.Report()) }

// Call is a lane that the other side will dial.
type Call struct {
	end  End
	lane func(*sock.Stream) // one of these is nil
	hop  func(sock.Conn)

	lacks, crowded uint64 // of the Endpoint when the lane began to be expected
}

// Why says what of this side may have kept a lane from coming since it was
// expected: this node ran out of something, or its port was crowded. Nil if
// nothing did.
func (e *Endpoint) Why(c *Call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lacks > c.lacks {
		return e.lacked
	}
	if n := e.crowdedLocked() - c.crowded; n > 0 {
		return fmt.Errorf("the data port has too many connections: %d unauthenticated ones were closed meanwhile; the log names the first", n)
	}
	return nil
}

func (e *Endpoint) crowdedLocked() uint64 {
	return e.stats.Refused[reasonCrowded] + e.stats.Refused[reasonSource]
}

// Expect makes the Endpoint take the connection that proves to be the other end
// of a lane, once. got is given its stream, on another goroutine.
func (e *Endpoint) Expect(end End, got func(*sock.Stream)) (*Call, error) {
	return e.expect(&Call{end: end, lane: got})
}

// ExpectHop makes the Endpoint take the connection that proves to be the other end
// of a circuit's hop, once. got is given it, on another goroutine.
func (e *Endpoint) ExpectHop(end End, got func(sock.Conn)) (*Call, error) {
	return e.expect(&Call{end: end, hop: got})
}

func (e *Endpoint) expect(c *Call) (*Call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.lacks, c.crowded = e.lacks, e.crowdedLocked()
	end := c.end
	if e.closed {
		return nil, net.ErrClosed
	}
	if e.expected[end.Name] != nil {
		return nil, fmt.Errorf("lane %d of connection %d of session %v is already expected", end.Name.Lane, end.Name.Conn, end.Name.Session)
	}
	e.expected[end.Name] = c
	return c, nil
}

// Cancel withdraws an expectation that has not been met. got may be running, or
// about to.
func (e *Endpoint) Cancel(c *Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.expected[c.end.Name] == c {
		delete(e.expected, c.end.Name)
	}
}

// look returns who waits for a lane.
func (e *Endpoint) look(n handshake.LaneName) *Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.expected[n]
}

// meet takes an expectation off the list. It reports false when somebody else
// has, or it was withdrawn.
func (e *Endpoint) meet(c *Call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.expected[c.end.Name] != c {
		return false
	}
	delete(e.expected, c.end.Name)
	e.stats.Accepted++
	return true
}

// scaled stretches a deadline on a slow machine.
func (e *Endpoint) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * e.cfg.TimeScale)
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Refused = maps.Clone(s.Refused)
	s.Expected = len(e.expected)
	s.Inside = e.lobby.Len()
	return s
}

// Close ends listening and every exchange in progress. Streams and connections that
// were given out belong to those who have them.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	listeners := slices.SortedFunc(maps.Values(e.listeners), func(a, b sock.Listener) int { return a.Addr().Compare(b.Addr()) })
	clear(e.expected)
	e.mu.Unlock()
	e.cancel()
	var first error
	for _, ln := range listeners {
		if err := ln.Close(); err != nil && first == nil {
			first = err
		}
	}
	e.lobby.Close()
	e.wg.Wait()
	return first
}
