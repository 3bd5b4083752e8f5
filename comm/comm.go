package comm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/comm/bootstrap"
	"ncclmesh/comm/pace"
	"ncclmesh/guard"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
	"ncclmesh/transport/stage"
	"ncclmesh/transport/turn"
)

// state is the state of a Comm. It never goes back.
//
//	open ──► closing ──► closed
type state uint32

const (
	stateOpen    state = 0
	stateClosing state = 1 // calls fail, and those that wait return
	stateClosed  state = 2
)

func (s state) String() string { return [...]string{"open", "closing", "closed"}[s] }

// A Comm is one rank of a job.
type Comm struct {
	process *Process
	mesh    *mesh
	member  *bootstrap.Member
	space   *onesided.Space
	state   stage.Stage[state]
	work    sync.WaitGroup // its goroutines
	busy    atomic.Bool    // a request was made since the last step of the goroutine that makes progress
	polls   atomic.Uint64  // calls of move
	active  atomic.Int64   // calls that may use the memory of epochs, which Close frees

	collective turn.Turn // held by Setup, Register, Deregister, LaunchProxies, StopProxies and Close

	// Written with collective held.
	peers       []*onesided.Peer // by rank; nil: there is no connection to it
	windows     []*window        // registered memory
	connections atomic.Pointer[[]*Connection]
	epochs      []*epochs
	proxy       atomic.Pointer[proxy] // nil: proxies do not run

	mu          sync.Mutex    // a leaf lock
	unconnected []*Connection // Connect has made them, Setup has not; guarded by mu
}

// InitRank joins the job of n ranks whose rank 0 listens at address, "address:port", as this rank. NCCL_MESH_KEY must be set, to
// the same value on all nodes. It returns when all ranks have joined.
func (p *Process) InitRank(n int, address string, rank int) (*Comm, error) {
	return p.init(n, rank, func(h *bootstrap.Host) (*bootstrap.Member, error) {
		return h.JoinAddress(address, rank, n, p.bootstrapTimeout())
	})
}

// InitRankFromID joins the job of n ranks with the ID as this rank. It returns when all ranks have joined.
func (p *Process) InitRankFromID(n int, id ID, rank int) (*Comm, error) {
	return p.init(n, rank, func(h *bootstrap.Host) (*bootstrap.Member, error) {
		return h.Join(id, rank, n, p.bootstrapTimeout())
	})
}

func (p *Process) init(n, rank int, join func(*bootstrap.Host) (*bootstrap.Member, error)) (*Comm, error) {
	if n < 1 || n > bootstrap.MaxRanks || rank < 0 || rank >= n {
		return nil, fmt.Errorf("%w: rank %d of %d ranks: there may be 1 to %d, counted from 0", ErrArgument, rank, n, bootstrap.MaxRanks)
	}
	m, err := p.acquire()
	if err != nil {
		return nil, err
	}
	member, err := join(m.bootstrap)
	if err != nil {
		return nil, errors.Join(err, p.release())
	}
	c := &Comm{process: p, mesh: m, member: member, space: onesided.New(), peers: make([]*onesided.Peer, n)}
	c.space.UseCopier(m.Copier())
	c.connections.Store(new([]*Connection))
	c.peers[rank] = c.space.Self()
	c.spawn(c.makeProgress)
	return c, nil
}

// Rank returns the rank of this side.
func (c *Comm) Rank() int { return c.member.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.member.Size() }

// AllGather sends this rank's part of data to all ranks, and receives theirs. data has one part of the same size for each rank, in
// order; the caller has filled its own. All ranks have to call it. It is for small data, and does not use the buffers.
func (c *Comm) AllGather(data []byte) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.member.AllGather(data, c.process.bootstrapTimeout())
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.member.Barrier(c.process.bootstrapTimeout())
}

// usable returns an error if the Comm was closed.
func (c *Comm) usable() error {
	if s := c.state.At(); s != stateOpen {
		return fmt.Errorf("%w: the communicator is %v", fault.ErrUsage, s)
	}
	return nil
}

// enter begins a call that may use the memory of epochs. Unless it returns an error the caller calls leave.
func (c *Comm) enter() error {
	c.active.Add(1)
	err := c.usable()
	if err != nil {
		c.active.Add(-1)
	}
	return err
}

func (c *Comm) leave() { c.active.Add(-1) }

// lockCollective locks c.collective, unless the Comm is closed.
func (c *Comm) lockCollective() error {
	c.collective.Lock()
	err := c.usable()
	if err != nil {
		c.collective.Unlock()
	}
	return err
}

// spawn starts a goroutine that Close waits for.
func (c *Comm) spawn(f func()) {
	c.work.Go(func() { guard.Run(f, c.caught) })
}

func (c *Comm) caught(p *guard.Panic) { fault.Panicked(c.process.log, "a communicator", p) }

// How long the goroutine that makes progress pauses, at most: it is the delay of a signal for a GPU or processor that polls the
// epoch itself, and of an answer to a get. A pause is about a tenth of the time since something has moved.
const (
	longestIdle  = time.Millisecond
	longestQuiet = 5 * time.Millisecond // when nothing has moved for
	quietAfter   = 10 * time.Second
	besideCalls  = 200 * time.Microsecond // while calls make progress
)

// makeProgress makes progress until the Comm is closed.
func (c *Comm) makeProgress() {
	pace := c.newPace(longestIdle)
	moved := time.Now()
	var polls uint64
	for c.state.At() < stateClosed {
		if n := c.polls.Load(); n != polls { // a second thread would only be in the way
			polls, moved = n, time.Now()
			c.process.host.Machine.Clock.Sleep(besideCalls)
			continue
		}
		if found := c.space.Progress(); c.busy.Swap(false) || found {
			pace.Reset()
			pace.Max, moved = longestIdle, time.Now()
		} else if pace.Max < longestQuiet && time.Since(moved) > quietAfter {
			pace.Max = longestQuiet
		}
		pace.Wait()
	}
}

// newPace returns the pauses of one caller that waits.
func (c *Comm) newPace(longest time.Duration) *pace.Pace {
	return &pace.Pace{Clock: c.process.host.Machine.Clock, Spins: c.process.host.Spins, Max: longest}
}

// Close ends this rank's part in the job. Calls that wait return an error. It stops the proxies. Requests that are outstanding may be
// lost: call Flush, and then Barrier, before. Further calls do nothing. The other ranks get an error from calls that concern this one.
func (c *Comm) Close() error {
	if !c.state.Enter(stateClosing) {
		return nil
	}
	c.member.Interrupt()
	c.collective.Lock()
	defer c.collective.Unlock()
	for pace := c.newPace(longestPause); c.active.Load() > 0; {
		pace.Wait()
	}
	c.endProxy()
	errs := []error{c.member.Leave()}
	c.state.Enter(stateClosed)
	c.work.Wait()
	errs = append(errs, c.space.Close())
	if err := errors.Join(errs...); err != nil { // an adapter may still use the memory
		return errors.Join(err, c.process.release())
	}
	for _, e := range c.epochs {
		errs = append(errs, e.memory.Free())
	}
	for _, x := range *c.connections.Load() {
		errs = append(errs, x.fifo.Free())
	}
	return errors.Join(append(errs, c.process.release())...)
}

// window is registered memory. Connections and buffers with the same memory share it.
type window struct {
	*onesided.Window
	region Region
	uses   int
}

// register makes memory a window, or finds the window that it is already.
//
// Preconditions: c.collective is locked.
func (c *Comm) register(r Region) (*window, error) {
	if r.DMABuf == nil {
		if i := slices.IndexFunc(c.windows, func(w *window) bool { return w.region == r }); i >= 0 {
			c.windows[i].uses++
			return c.windows[i], nil
		}
	}
	var w *onesided.Window
	var err error
	if r.DMABuf != nil {
		w, err = c.space.RegisterDMABuf(r.Kind, r.Addr, uintptr(r.Length), r.DMABuf.Offset, r.DMABuf.FD)
	} else {
		w, err = c.space.Register(r.Kind, r.Addr, uintptr(r.Length))
	}
	if err != nil {
		return nil, err
	}
	registered := &window{w, r, 1}
	c.windows = append(c.windows, registered)
	return registered, nil
}

// deregister ends a use of a window, and with the last one the window. It returns when nothing touches the memory any more.
//
// Preconditions: c.collective is locked.
func (c *Comm) deregister(w *window) error {
	if w.uses--; w.uses > 0 {
		return nil
	}
	c.windows = slices.DeleteFunc(c.windows, func(other *window) bool { return other == w })
	pace := c.newPace(longestPause)
	for deadline := time.Now().Add(c.process.bootstrapTimeout()); ; pace.Wait() {
		ended, err := w.Close()
		if ended || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return w.Abandon()
		}
		c.space.Progress()
	}
}
