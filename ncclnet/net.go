package ncclnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/turn"
)

// A Net is the network plugin, the RMA plugin and the tuner plugin of one process.
type Net struct {
	process *Process
	log     *slog.Logger

	contexts table[netContext]
	listens  table[listenComm]
	dials    table[dial]
	sends    table[sendComm]
	recvs    table[recvComm]
	regions  table[region]

	rmaContexts table[rmaContext]
	rmaListens  table[rmaListen]
	rmaGroups   table[rmaGroup]
	rmaSeries   table[rmaSeries]
	rmaWindows  table[rmaWindow]
	rmaOffer    atomic.Pointer[mesh] // for which the log has said that one-sided communication is offered

	sharing turn.Turn     // held while the shared context is made
	shared  atomic.Uint64 // the context of callers without one; 0: none

	attempts attempts      // connects and listens, with their logged errors
	noPeer   noPeerWarning // warns about listeners without a connection

	tables tables

	showing sync.Mutex // held while shown is set
	shown   atomic.Pointer[shown]
}

// A netContext is the state of one communicator. Objects that were opened in it are closed with it.
type netContext struct {
	*Reference
	logger   Logger // the logger that init passed
	devices  int    // number of devices that were reported to NCCL
	profiler *profiler
}

// New returns a plugin that does not hold a reference to the process's transport yet.
func New(p *Process) *Net {
	return &Net{
		process:  p,
		log:      p.log,
		contexts: table[netContext]{kind: kindContext},
		listens:  table[listenComm]{kind: kindListen},
		dials:    table[dial]{kind: kindDial},
		sends:    table[sendComm]{kind: kindSend},
		recvs:    table[recvComm]{kind: kindRecv},
		regions:  table[region]{kind: kindRegion},

		rmaContexts: table[rmaContext]{kind: kindRMAContext},
		rmaListens:  table[rmaListen]{kind: kindRMAListen},
		rmaGroups:   table[rmaGroup]{kind: kindRMAGroup},
		rmaSeries:   table[rmaSeries]{kind: kindRMASeries},
		rmaWindows:  table[rmaWindow]{kind: kindRMAWindow},
	}
}

// Init opens a context for one communicator (interface v11 and later). trafficClass is the communicator's, or -1.
func (n *Net) Init(logger Logger, caller Caller, trafficClass int) (Handle, Result) {
	h, err := n.init(logger, caller, trafficClass)
	return h, n.resultTo(n.process.logTo(logger), 0, "init", err)
}

// InitShared opens the shared context of a process (interface before v11). The context stays open, because these
// versions have no finalize. Later calls change only the logger.
func (n *Net) InitShared(logger Logger, caller Caller) Result {
	n.sharing.Lock()
	defer n.sharing.Unlock()
	if c := n.contexts.get(Handle(n.shared.Load())); c != nil {
		c.LogTo(logger)
		return ncclSuccess
	}
	h, err := n.init(logger, caller, -1)
	n.shared.Store(uint64(h))
	return n.resultTo(n.process.logTo(logger), 0, "init", err)
}

func (n *Net) init(logger Logger, caller Caller, trafficClass int) (Handle, error) {
	ref, err := n.process.Acquire(logger, trafficClass)
	if err != nil {
		return 0, err
	}
	ref.net.UsedBy(caller.Interface)
	h, err := n.contexts.put(&netContext{ref, logger, len(n.show(ref.mesh, caller)), newProfiler(&n.process.host, caller)})
	if err != nil {
		err = errors.Join(err, ref.Release())
	}
	return h, err
}

// Finalize closes a context and all objects that are still open in it, because an aborted communicator leaves half-open
// connections behind. With the last context it closes the transport, unless there is another reference. After it has
// returned, the context's logger is not called any more, because its library may be unloaded. It accepts NULL, because
// some releases finalize a context whose init failed, and a context that was finalized before: see table.close.
func (n *Net) Finalize(h Handle) Result {
	c, err := n.contexts.close(h)
	if c == nil {
		return n.result("finalize", err)
	}
	n.reap(h) // before the release, because it needs the transport
	return n.resultTo(n.process.logTo(c.logger), 0, "finalize", c.Release())
}

// FlushBeforeExit waits until the peers have received the sent data, for a limited time. It is for a process that is
// about to end without having called Finalize.
func (n *Net) FlushBeforeExit() { n.process.flushBeforeExit() }

// reap closes all objects that were opened in the context h.
func (n *Net) reap(h Handle) {
	var leftovers int
	closed := func(what string, err error) {
		leftovers++
		if err != nil {
			n.log.Warn("finalize: closing a "+what+" that NCCL left open", "error", err)
		}
	}
	for _, d := range n.dials.take(func(d *dial) bool { return d.ctx == h }) {
		closed("connection attempt", d.dialing.Close())
	}
	for _, l := range n.listens.take(func(l *listenComm) bool { return l.ctx == h }) {
		closed("listener", l.close())
	}
	for _, c := range n.sends.take(func(c *sendComm) bool { return c.ctx == h }) {
		closed("send connection", n.closeComm(&c.comm))
	}
	for _, c := range n.recvs.take(func(c *recvComm) bool { return c.ctx == h }) {
		closed("receive connection", n.closeComm(&c.comm))
	}
	if leftovers > 0 {
		n.log.Info("finalize: closed what the communicator left open", "objects", leftovers)
	}
}

// context returns the context of a handle. Zero is the shared context.
func (n *Net) context(h Handle) (Handle, *netContext, error) {
	if h == 0 {
		if h = Handle(n.shared.Load()); h == 0 {
			return 0, nil, fmt.Errorf("%w: called without a successful init", errUsage)
		}
	}
	c, err := n.contexts.find(h)
	return h, c, err
}

// result logs an error with the name and line of its caller, and returns NCCL's result for it.
func (n *Net) result(call string, err error) Result { return n.resultTo(n.log, 1, call, err) }

// resultTo does what result does, for a caller further up the stack and with another log.
func (n *Net) resultTo(log *slog.Logger, up int, call string, err error) Result {
	if err == nil {
		return ncclSuccess
	}
	r := resultOf(err)
	if !log.Enabled(context.Background(), slog.LevelWarn) {
		return r
	}
	var pc [1]uintptr
	runtime.Callers(2+up, pc[:])
	record := slog.NewRecord(time.Now(), slog.LevelWarn, fmt.Sprintf("%s: %v (%v)", call, err, r), pc[0])
	_ = log.Handler().Handle(context.Background(), record) // Handle never fails
	return r
}

// Panicked reports a panic that was caught in a call for h. If h is a connection, or a request of one, or a group or a context of one, that
// fails, because the panic may have left its state inconsistent.
func (n *Net) Panicked(call string, h Handle, value any, stack []byte) Result {
	p := &guard.Panic{Value: value, Stack: stack}
	why := fmt.Errorf("%w: %s: %w", fault.ErrInternal, call, p)
	if k := h.kind() &^ kindRequest; k == kindSend || k == kindRecv {
		if c, err := n.comm(h.comm()); err == nil {
			c.memory.Fail(why)
		}
	}
	if s := n.rmaSeries.get(h); s != nil {
		h = s.group.handle
	}
	if g := n.rmaGroups.get(h); g != nil {
		g.Fail(why)
	}
	return n.result(call, fmt.Errorf("%w: %s", fault.ErrInternal, p.Report()))
}
