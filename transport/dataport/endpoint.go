package dataport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
)

// Config configures an Endpoint.
type Config struct {
	// KeepAlive is how long the kernel tolerates an idle peer that does not answer keep-alive probes.
	KeepAlive time.Duration
	// PortRange is the range of TCP ports to listen on and to dial from. The zero value: any port.
	PortRange sock.PortRange
	// Network is the network to listen and dial on. Nil: the kernel's.
	Network sock.Network
	// Clock makes the timers, and scales the waits.
	Clock clock.Clock
	// Descriptors is the limit of the process's descriptors. 0: the kernel's limit.
	Descriptors uint64
	// Random decides which unauthenticated connection is evicted.
	Random random.Source
	// Log receives the log lines. Nil: they are discarded.
	Log *slog.Logger
}

// End is one end of a lane: the parameters that its two sides have agreed on over the session, and the address of this
// side.
type End struct {
	Name   handshake.LaneName
	Key    handshake.Key
	Tokens handshake.LaneTokens
	Addr   netip.Addr // own address; a link-local one has a zone
	Netdev string     // own interface; "": any

	// Reached is called by Dial with true after the other side's kernel has answered, because from then on only the
	// other process is waited for, and with false if the attempt fails after that. May be nil.
	Reached func(bool)
}

// Endpoint makes all TCP connections of a process's lanes.
type Endpoint struct {
	cfg      Config
	ctx      context.Context
	cancel   context.CancelFunc
	acceptor *accept.Acceptor
	network  sock.Network

	mu        sync.Mutex
	closed    bool
	listeners map[listenAddr]sock.Listener
	expected  map[handshake.LaneName]*Call
	stats     Stats // Dialled and Accepted
}

// listenAddr is the address and interface of a listener.
type listenAddr struct {
	addr   netip.Addr
	netdev string
}

// Stats are counters since the Endpoint was made, and the numbers of what is open now.
type Stats struct {
	Dialled  uint64            // lanes dialled
	Accepted uint64            // lanes accepted
	Refused  map[string]uint64 // connections refused, by reason
	Expected int               // lanes that have not connected yet
	Pending  int               // connections that have not authenticated yet
}

// New makes an Endpoint. It does not listen yet.
func New(cfg Config) *Endpoint {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Endpoint{
		cfg:       cfg,
		network:   sock.On(cfg.Network),
		listeners: map[listenAddr]sock.Listener{},
		expected:  map[handshake.LaneName]*Call{},
	}
	e.acceptor = accept.New(accept.Config{
		Name: "data port", Handshake: e.authenticate, Timeout: authTimeout, MaxPending: maxPending, PerSource: maxPerSource,
		Descriptors: cfg.Descriptors, Clock: cfg.Clock, Random: cfg.Random, Log: cfg.Log,
	})
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Listen returns the TCP port on which lanes to an address of an interface are accepted. The first call for an address
// opens the listener, which stays open until Close.
func (e *Endpoint) Listen(addr netip.Addr, netdev string) (uint16, error) {
	at := listenAddr{addr.Unmap(), netdev}
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
		if err := e.acceptor.Serve(ln); err != nil {
			return 0, err
		}
		e.listeners[at] = ln
	}
	return ln.Addr().Port(), nil
}

// Call is a lane, or a hop, that the other side is expected to dial.
type Call struct {
	end  End
	lane func(*sock.Stream) // either lane or hop is nil
	hop  func(sock.Conn)

	made accept.Mark // when the Call was made
}

// Why returns the cause on this side that may have prevented a lane from connecting since it was expected: this node
// ran out of a resource, or had too many unauthenticated connections. It returns nil if there is none.
func (e *Endpoint) Why(c *Call) error {
	return e.acceptor.Since(c.made)
}

// Expect announces a lane. Once a connection authenticates as its other end, got is called once with the stream, on
// another goroutine.
func (e *Endpoint) Expect(end End, got func(*sock.Stream)) (*Call, error) {
	return e.expect(&Call{end: end, lane: got})
}

// ExpectHop announces a circuit's hop. Once a connection authenticates as its other end, got is called once with the
// connection, on another goroutine.
func (e *Endpoint) ExpectHop(end End, got func(sock.Conn)) (*Call, error) {
	return e.expect(&Call{end: end, hop: got})
}

func (e *Endpoint) expect(c *Call) (*Call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.made = e.acceptor.Mark()
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

// Cancel withdraws an expectation that was not claimed. got may still be running, or about to run.
func (e *Endpoint) Cancel(c *Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.expected[c.end.Name] == c {
		delete(e.expected, c.end.Name)
	}
}

// lookUp returns the expectation for a lane, or nil.
func (e *Endpoint) lookUp(n handshake.LaneName) *Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.expected[n]
}

// claim removes an expectation. It returns false if the expectation was claimed or withdrawn before.
func (e *Endpoint) claim(c *Call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.expected[c.end.Name] != c {
		return false
	}
	delete(e.expected, c.end.Name)
	e.stats.Accepted++
	return true
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Refused = e.acceptor.Counts()
	s.Expected = len(e.expected)
	s.Pending = e.acceptor.Pending()
	return s
}

// Close closes the listeners and ends every handshake in progress. Streams and connections that were passed on stay
// open.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	clear(e.expected)
	e.mu.Unlock()
	e.cancel()
	return e.acceptor.Close()
}
