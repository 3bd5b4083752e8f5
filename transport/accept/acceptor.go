package accept

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// retryPause is the time before another accept after one has failed, before scaling. Peers stay in the kernel's queue
// meanwhile.
const retryPause = 50 * time.Millisecond

// Config configures an Acceptor.
type Config struct {
	Name        string        // of the listeners, for log lines and errors
	Timeout     time.Duration // how long a handshake may last, before scaling
	MaxPending  int           // connections that have not authenticated; fewer if the process may have few descriptors
	PerSource   int           // those from one address
	Descriptors uint64        // limit of the process's descriptors; 0: the kernel's
	Clock       clock.Clock   // makes the timers, and scales the waits
	Random      random.Source // decides which unauthenticated connection is evicted
	Log         *slog.Logger

	// Handshake authenticates the peer of a connection. It runs on a goroutine of its own, and all reads and writes on the
	// connection fail after Timeout. It calls Conn.HelloRead and Conn.Authenticated. If it returns nil, the connection
	// has an owner. After an error the Acceptor closes the connection, and counts it by the reason of a *Refusal, as
	// TimedOut after a deadline, as Truncated after an end in the middle of a message, and not at all otherwise.
	Handshake func(*Conn) error
}

// Acceptor accepts the connections of any number of listeners. Its methods may be called from any goroutine.
type Acceptor struct {
	Refusals

	cfg     Config
	limiter Limiter
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu        sync.Mutex // a leaf lock
	closed    bool
	listeners []sock.Listener
}

// New makes an Acceptor without listeners.
func New(cfg Config) *Acceptor {
	a := &Acceptor{
		Refusals: Refusals{name: cfg.Name, log: cfg.Log},
		cfg:      cfg,
		limiter:  Limiter{Max: maxPending(cfg.MaxPending, cfg.Descriptors), PerSource: cfg.PerSource, Random: cfg.Random},
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Serve accepts the connections of a listener, which belongs to the Acceptor then, until Close. After Close it closes the
// listener, and returns net.ErrClosed.
func (a *Acceptor) Serve(ln sock.Listener) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = ln.Close()
		return net.ErrClosed
	}
	a.listeners = append(a.listeners, ln)
	a.wg.Go(func() { guard.Run(func() { a.accept(ln) }, a.caught) })
	return nil
}

// Pending returns the number of connections that have not authenticated yet.
func (a *Acceptor) Pending() int { return a.limiter.Len() }

// Close closes the listeners and the pending connections, and returns when every handshake has ended. Connections that
// have an owner stay open.
func (a *Acceptor) Close() error {
	a.mu.Lock()
	a.closed = true
	listeners := slices.SortedFunc(slices.Values(a.listeners), func(x, y sock.Listener) int { return x.Addr().Compare(y.Addr()) })
	a.listeners = nil
	a.mu.Unlock()
	a.cancel()
	var first error
	for _, ln := range listeners {
		if err := ln.Close(); err != nil && first == nil {
			first = err
		}
	}
	a.limiter.Close()
	a.wg.Wait()
	return first
}

// caught logs a panic. The connection or the listener that the goroutine served is lost.
func (a *Acceptor) caught(p *guard.Panic) { a.log.Error(a.name + ": " + p.Report()) }

// accept accepts connections until the listener is closed.
func (a *Acceptor) accept(ln sock.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			a.Refuse(AcceptFailed, netip.AddrPort{}, limit.Own(err))
			if !a.cfg.Clock.Pause(a.ctx, a.cfg.Clock.Scaled(retryPause)) {
				return
			}
			continue
		}
		p := a.limiter.Add(c, c.Remote())
		if p == nil {
			a.Refuse(TooMany, c.Remote(), nil)
			_ = c.Close()
			continue
		}
		a.wg.Go(func() {
			guard.Run(func() { a.authenticate(&Conn{Conn: c, Source: p.source, limiter: &a.limiter, pending: p}) }, a.caught)
		})
	}
}

// authenticate runs the handshake on a connection, and closes the connection if it fails.
func (a *Acceptor) authenticate(c *Conn) {
	owned := false
	defer func() { // also after a panic
		a.limiter.Remove(c.pending)
		if !owned {
			_ = c.Conn.Close()
		}
	}()
	_ = c.Conn.SetDeadline(time.Now().Add(a.cfg.Clock.Scaled(a.cfg.Timeout)))
	err := a.cfg.Handshake(c)
	if owned = err == nil; owned {
		return
	}
	eviction := a.limiter.Remove(c.pending)
	var refusal *Refusal
	errors.As(err, &refusal)
	switch {
	case a.ctx.Err() != nil:
	case eviction == SourceFull:
		a.Refuse(TooManyFromSource, c.Source, nil)
	case eviction == AllFull:
		a.Refuse(TooMany, c.Source, nil)
	case refusal != nil:
		if refusal.Reason != "" {
			a.Refuse(refusal.Reason, c.Source, refusal.Err)
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		a.Refuse(TimedOut, c.Source, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		a.Refuse(Truncated, c.Source, err)
	}
	if refusal != nil && len(refusal.Reject) > 0 {
		_, _ = c.Conn.Write(refusal.Reject)
	}
}

// Conn is a connection that has not authenticated yet.
type Conn struct {
	Conn   sock.Conn
	Source netip.AddrPort // address of the peer

	limiter *Limiter
	pending *Pending
}

// HelloRead tells the Acceptor that the peer has sent its whole first message, so that the connection is not evicted any
// more. It returns net.ErrClosed if the connection was evicted before.
func (c *Conn) HelloRead() error {
	if !c.limiter.Protect(c.pending) {
		return net.ErrClosed
	}
	return nil
}

// Authenticated tells the Acceptor that the connection does not count against the limits any more.
func (c *Conn) Authenticated() { c.limiter.Remove(c.pending) }
