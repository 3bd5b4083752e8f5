package rma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
)

// MaxRanks is the largest number of ranks of a group.
const MaxRanks = 1 << rankBits

// A Config says which ranks a group connects.
type Config struct {
	Transport *transport.Transport
	Listener  *transport.Listener // of this rank, with its handle in Handles; it stays the caller's
	Handles   []handshake.Handle  // of the listeners of all ranks
	Rank      int                 // of the caller
	Clock     clock.Clock
	Log       *slog.Logger

	// Polls is how often the group's goroutine looks without a pause after something has moved; 0: 20000, some milliseconds.
	Polls int
}

// A Group is the ranks of a communicator, as one of them sees them.
type Group struct {
	space *onesided.Space
	links []link // by rank
	rank  int
	clock clock.Clock
	log   *slog.Logger
	polls int

	calls  atomic.Uint64         // of NCCL's threads that have made progress
	driven atomic.Bool           // NCCL calls Progress, so that Test need not poll
	failed atomic.Pointer[error] // why no rank can be reached any more

	stop    context.CancelFunc // of the group's goroutine
	stopped chan struct{}      // closed when it has ended
}

// Connect connects this rank with all others, which call Connect too. It waits for them, for a limited time. After an error nothing is
// left open, except the listener.
func Connect(c Config) (*Group, error) {
	switch {
	case len(c.Handles) < 1 || len(c.Handles) > MaxRanks:
		return nil, fmt.Errorf("%w: a group of %d ranks; 1 to %d can be connected", fault.ErrUsage, len(c.Handles), MaxRanks)
	case c.Rank < 0 || c.Rank >= len(c.Handles):
		return nil, fmt.Errorf("%w: rank %d of a group of %d", fault.ErrUsage, c.Rank, len(c.Handles))
	}
	g := &Group{
		space: onesided.New(), links: make([]link, len(c.Handles)), rank: c.Rank, clock: c.Clock, log: c.Log, polls: c.Polls,
		stopped: make(chan struct{}),
	}
	if g.polls == 0 {
		g.polls = 20000
	}
	g.space.UseCopier(c.Transport.Copier())
	for r := range g.links {
		g.links[r].init(g, r)
	}
	if err := g.meet(c); err != nil {
		return nil, errors.Join(err, g.space.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go guard.Run(func() { g.drive(ctx) }, g.caught)
	return g, nil
}

// Close ends all operations and windows, and closes the connections. The other ranks may have operations under way to this one, which
// then fail there.
func (g *Group) Close() error {
	g.stop()
	<-g.stopped
	return g.space.Close()
}

// Fail ends the use of the group: each call returns the error.
func (g *Group) Fail(err error) { g.failed.CompareAndSwap(nil, &err) }

// usable returns why the group cannot be used, or nil.
func (g *Group) usable() error {
	if e := g.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// Err returns why the group does not work completely any more, or nil: the error of the first operation that has failed, or of
// a rank that was lost. A rank that has closed its group is not lost.
func (g *Group) Err() error {
	if err := g.usable(); err != nil {
		return err
	}
	for i := range g.links {
		if err := g.links[i].broken(); err != nil {
			return err
		}
	}
	return nil
}

// caught fails the group after a panic of its goroutine.
func (g *Group) caught(p *guard.Panic) {
	fault.Panicked(g.log, "one-sided communication", p)
	g.Fail(fmt.Errorf("%w: one-sided communication: %w", fault.ErrInternal, p))
}
