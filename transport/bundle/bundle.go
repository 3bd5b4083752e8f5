package bundle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/board"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/control"
	"ncclmesh/transport/crew"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/turn"
)

// Env is what the bundles of a process have in common.
type Env struct {
	Log       *slog.Logger
	LaneWait  time.Duration // how long a silent peer is waited for, and a way to it
	ProofWait time.Duration // how long lanes may take to prove themselves once one has
	TimeScale float64       // multiplies every deadline
	Clock     clock.Clock   // makes the timers
	Page      *stats.Page   // where connections are shown; nil: nowhere
	Loss      Loss          // of all connections

	Making     *crew.Crew                 // makes and destroys lanes
	Background func(func())               // runs a function on a goroutine that the process's end waits for
	Context    context.Context            // ends then
	WarnOnce   func(subject, text string) // logs the first warning about a subject
	SayOnce    func(subject, text string) // logs the first news about a subject
	// Again reports whether the user was warned of a subject a moment ago: what happens to a
	// cable happens to every connection. Nil: never.
	Again  func(subject string) bool
	Forget func(*Bundle) // the bundle is to hear no more messages
	// Plan is a receiver's half of each lane that a sender offers.
	Plan func(b *Bundle, offered []handshake.Lane) ([]lane.Plan, error)
	// Lacks is told of a sender's bundle that has lost a lane. It does not block.
	Lacks func(*Bundle)
}

// Scaled is d stretched by the time scale.
func (e *Env) Scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * e.TimeScale)
}

// Half is what stands on a bundle: the messages of a connection's one half.
// Its methods are called with the bundle's mutex held, but for Moved and String.
type Half interface {
	lane.Sink
	// Report is the receiver's word on what has arrived, when a lane is down at both ends;
	// what went the other way over it is to be sent again.
	Report(l *lane.Lane) *handshake.Report
	// Reported is what the sender has heard of a lane that is down at both ends: what
	// did not arrive is to be sent again. Of one that was reported before it takes only
	// how much may be sent again; l is nil then.
	Reported(l *lane.Lane, m *handshake.Report) error
	// Wanted is what the receiver has heard of a sender that waits, and has sent so many
	// eager messages.
	Wanted(eager uint64)
	// Resume sends again what there is room for, and reports whether that was all.
	Resume() (done bool)
	// Widened says that devices' lanes have joined, which the grants that are outstanding
	// may have no key for.
	Widened()
	// Waits says for each lane, by index, which message was posted first of those of which
	// a part is under way on it; 0 is none.
	Waits(first *[lane.MaxParts]uint64)
	// Missing is the sequence of a grant that has not come though a later one has, and the
	// index of the lane over which it was to; 0 is none.
	Missing() (seq uint64, index int)
	// Waiting reports whether parts may arrive.
	Waiting() bool
	// Outstanding is how many requests are not complete.
	Outstanding() int
	// Abandon ends every outstanding request: nothing uses its buffers any more.
	Abandon()
	// Moved is a number that changes when data moves. It may be called from any
	// goroutine.
	Moved() uint64
	// String is the half's figures for the log, "" when there are none.
	String() string
}

// Bundle is the lanes of a connection.
type Bundle struct {
	shown
	lane.Conn             // which lanes know, and does not change after the set-up
	Board     board.Board // what C may read of it
	env       *Env
	glimpse   time.Duration // stallGap, scaled
	half      Half
	first     *setup
	joining   atomic.Pointer[setup] // of more lanes; nil while there is none
	joins     sync.WaitGroup
	admits    atomic.Int32
	growing   turn.Turn       // held while a domain joins; taken before mu
	stopping  turn.Turn       // held while lanes are stopped for good; taken before mu
	life      context.Context // ends when the bundle is to be closed
	die       context.CancelFunc

	ending    atomic.Pointer[Ending] // nil while the connection is not over
	peerTold  atomic.Bool            // the peer needs no word about the end
	byeOnce   sync.Once
	lossNoted atomic.Bool
	bye       chan struct{}  // closed when the peer's Bye, or its end, is known
	withdrawn atomic.Uintptr // memory that was deregistered with a receive outstanding, or 0

	heed heeding // of what happens to lanes in service

	mu       turn.Turn // guards everything below, and the half's requests; may be held while verbs take long
	closed   bool      // by its owner
	quiet    bool      // its lanes have been stopped for good, or are being stopped: none comes into service
	lanes    []*lane.Lane
	domains  []lane.Domain
	traits   lane.Traits             // the strictest of the lanes'
	peers    int                     // domains of the peer
	grown    bool                    // it has had fewer
	regions  map[*lane.Region]uint64 // and in which order they were registered
	kept     uint64                  // of them, so far
	joined   sync.Cond               // on mu: a region is no longer being registered
	leaving  []*leaving              // lanes that have failed and are not done with
	owing    bool                    // something is to be sent again
	gone     map[way]time.Time       // since when ways lack a lane that they had
	most     map[way]int             // lanes of each way that were in service at a time
	flaps    map[way]*flaps          // of ways whose lanes came back and failed again
	unused   bool                    // its first lanes failed before they were in service, and none has been since
	confined bool                    // to the ways of the first plan
	last     uint32                  // epoch of the lanes that joined last, at the sender; of the goroutine that calls Join
	doubted  map[*lane.Lane]uint64   // Lane.Delivered when they were doubted last
	outage   clock.Watch             // without a lane in service, since one was of use
	stalls   stalls
}

var _ lane.Bundle = (*Bundle)(nil)

// New makes a bundle without lanes. half is what stands on it; nil makes it a trial.
func New(env *Env, s *control.Session, id uint32, sending bool, half Half) *Bundle {
	b := &Bundle{
		Conn:  lane.Conn{ID: id, Sending: sending, Session: s, Sink: half, Trial: half == nil},
		shown: shown{Count: new(stats.Conn)}, env: env, glimpse: env.Scaled(stallGap), half: half, bye: make(chan struct{}),
		regions: map[*lane.Region]uint64{}, most: map[way]int{}, flaps: map[way]*flaps{}, gone: map[way]time.Time{}, doubted: map[*lane.Lane]uint64{},
		heed: heeding{kick: make(chan struct{}, 1)}, stalls: stalls{birth: time.Now()},
	}
	b.life, b.die = context.WithCancel(env.Context)
	b.first = newSetup(b, 0)
	if b.Trial {
		b.half, b.Sink = none{}, none{}
	}
	b.Bundle = b
	b.joined.L = &b.mu
	return b
}

// Lock locks the bundle, TryLock does if nobody else has.
func (b *Bundle) Lock()         { b.mu.Lock() }
func (b *Bundle) TryLock() bool { return b.mu.TryLock() }
func (b *Bundle) Unlock()       { b.mu.Unlock() }

// Lanes are the lanes, by index; not to be changed.
//
// Preconditions: b is locked.
func (b *Bundle) Lanes() []*lane.Lane { return b.lanes }

// Traits are what messages must heed of the lanes.
//
// Preconditions: b is locked.
func (b *Bundle) Traits() lane.Traits { return b.traits }

// Half is what stands on the bundle.
func (b *Bundle) Half() Half { return b.half }

// Log is where the bundle logs.
func (b *Bundle) Log() *slog.Logger { return b.env.Log }

// Poll takes the news from every lane that may have some.
//
// Preconditions: b is locked.
func (b *Bundle) Poll() {
	receiving := b.half.Waiting()
	timed := b.Sending && len(b.lanes) > 1
	if timed {
		b.stalls.look(b.glimpse)
	}
	for _, d := range b.domains {
		d.Poll(receiving)
	}
	if timed {
		b.judge()
	}
	if b.owing {
		b.owing = !b.half.Resume()
	}
	if !b.traits.Passive { // else every call is Go's
		b.Board.Polled()
		return
	}
	b.flush(!b.half.Waiting())
}

// Acknowledge tells the peer at once of parts that it waits to hear of.
//
// Preconditions: b is locked.
func (b *Bundle) Acknowledge() { b.flush(true) }

func (b *Bundle) flush(idle bool) {
	for _, d := range b.domains {
		d.Flush(idle)
	}
}

// Glean takes what has come from a peer that has left, though nobody waits for it.
//
// Preconditions: b is locked.
func (b *Bundle) Glean() {
	for _, d := range b.domains {
		d.Poll(true)
	}
}

// Owe has the half's Resume called, by the next poll or in the background.
//
// Preconditions: b is locked.
func (b *Bundle) Owe() { b.owing = true }

// Owes reports whether something has to go out, and nothing but this makes the
// connection's owner call again: a receive is not reported done before its sender has been
// told, nor an eager send before the kernel has it.
//
// Preconditions: b is locked.
func (b *Bundle) Owes() bool {
	if !b.traits.Passive || b.Ended() != nil || b.half.Waiting() {
		return false
	}
	for _, l := range b.lanes {
		if l.Carrier.Owes() {
			return true
		}
	}
	return false
}

// openBoard makes the board of a bundle that carries messages.
func (b *Bundle) openBoard() error {
	if b.Trial {
		return nil
	}
	var ring uintptr
	if b.Sending {
		ring = b.Wire.Base()
	}
	return b.Board.Open(ring)
}

// destroy gives back all lanes, domains and memory; while a lane cannot be, what it
// may use stays.
func (b *Bundle) destroy() error {
	b.env.Forget(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.closeLanes(); err != nil {
		return err
	}
	errs := []error{b.dropAll()}
	for _, d := range b.domains {
		errs = append(errs, d.Close())
	}
	b.lanes, b.domains = nil, nil
	b.Board.Close()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if b.Wire != nil {
		b.Wire.Free()
		b.Wire = nil
	}
	return nil
}

// Discard destroys a bundle that nobody uses.
func (b *Bundle) Discard() error {
	b.heed.close()
	b.die()
	b.joins.Wait()
	return b.env.Making.Do(b.destroy)
}

// Abort ends a bundle that did not come up.
func (b *Bundle) Abort(err error) error {
	b.Fail(err)
	return errors.Join(err, b.Discard())
}

// guarded calls f; a panic in it becomes an error.
func (b *Bundle) guarded(what string, f func() error) error {
	return fault.Guarded(b.env.Log, what, f)
}

// none is the half of a trial: no messages.
type none struct{}

func (none) Delivered(*lane.Lane, int, int) {}
func (none) Place(*lane.Lane, uint32, uint64, uint32) (uintptr, *lane.Region, bool) {
	return 0, nil, false
}
func (none) Dropped(*lane.Lane, uint32)           {}
func (none) Arrived(*lane.Lane, uint32, int64)    {}
func (none) Eager(*lane.Lane, lane.Eager, []byte) {}
func (none) Taken(lane.Taken) error {
	return errors.New("eager messages where only paths are validated")
}
func (none) Granted(uint64, []lane.Grant) error {
	return errors.New("a grant where only paths are validated")
}
func (none) Regranted(*lane.Lane, uint8)                  {}
func (none) Report(*lane.Lane) *handshake.Report          { return nil }
func (none) Wanted(uint64)                                {}
func (none) Reported(*lane.Lane, *handshake.Report) error { return nil }
func (none) Widened()                                     {}
func (none) Resume() bool                                 { return true }
func (none) Waits(*[lane.MaxParts]uint64)                 {}
func (none) Missing() (uint64, int)                       { return 0, 0 }
func (none) Waiting() bool                                { return false }
func (none) Outstanding() int                             { return 0 }
func (none) Abandon()                                     {}
func (none) Moved() uint64                                { return 0 }
func (none) String() string                               { return "" }
