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

// Name is the network's name, as in NCCL_NET=mesh.
const Name = "Mesh"

// A Net is the network plugin, and the tuner's, of one process.
type Net struct {
	process *Process
	log     *slog.Logger

	contexts table[netContext]
	listens  table[listenComm]
	dials    table[dial]
	sends    table[sendComm]
	recvs    table[recvComm]
	regions  table[region]

	sharing turn.Turn     // held while the shared context is made
	shared  atomic.Uint64 // the context of callers that have none, or 0

	attempts attempts // to set up a connection
	alone    alone    // what the log has said of listeners to which nobody connects

	tables tables

	showing sync.Mutex // held while shown is settled
	shown   atomic.Pointer[shown]
}

// A netContext is one communicator's view: what it opened ends with it.
type netContext struct {
	*Hold
	logger   Logger // the one it came with
	devices  int    // that NCCL was shown
	profiler *profiler
}

// New returns a plugin that holds nothing of the process yet.
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
	}
}

// Init opens a context for one communicator (v11 and later). trafficClass is
// the communicator's, or -1.
func (n *Net) Init(logger Logger, caller Caller, trafficClass int) (Handle, Result) {
	h, err := n.init(logger, caller, trafficClass)
	return h, n.resultTo(n.process.logTo(logger), 0, "init", err)
}

// InitShared opens the one context of a process (before v11), which stays open:
// these versions never say that they are done. Later calls change only the
// logger.
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
	hold, err := n.process.Hold(logger, trafficClass)
	if err != nil {
		return 0, err
	}
	hold.net.UsedBy(caller.Interface)
	h, err := n.contexts.put(&netContext{hold, logger, len(n.show(hold.mesh, caller)), newProfiler(&n.process.host, caller)})
	if err != nil {
		err = errors.Join(err, hold.Release())
	}
	return h, err
}

// Finalize closes a context and whatever it left open: an aborted communicator
// leaves its half-open connections behind. The last context takes the transport
// with it, unless somebody else holds it. When it returns, the context's logger is
// not called any more: it belongs to a library that may now be unloaded. NULL is
// accepted, because some releases finalize what they failed to init, and so is a
// context that was finalized before: see table.close.
func (n *Net) Finalize(h Handle) Result {
	c, err := n.contexts.close(h)
	if c == nil {
		return n.result("finalize", err)
	}
	n.reap(h) // before the release: the transport is needed for it
	return n.resultTo(n.process.logTo(c.logger), 0, "finalize", c.Release())
}

// Settle is for a process that is about to end, and may not have finalized: it waits, a
// moment at most, until the peers have what was sent.
func (n *Net) Settle() { n.process.settle() }

// reap closes all that was opened under the context h.
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

// context resolves a context; zero is the shared one.
func (n *Net) context(h Handle) (Handle, *netContext, error) {
	if h == 0 {
		if h = Handle(n.shared.Load()); h == 0 {
			return 0, nil, fmt.Errorf("%w: called without a successful init", errUsage)
		}
	}
	c, err := n.contexts.find(h)
	return h, c, err
}

// result is where an error is logged, under its caller's name and line, and
// becomes NCCL's.
func (n *Net) result(call string, err error) Result { return n.resultTo(n.log, 1, call, err) }

// resultTo is result for a caller so many calls up, and a log of its own.
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
	_ = log.Handler().Handle(context.Background(), record) // it never fails
	return r
}

// Panicked reports a panic that was caught in a call about h. If that is a
// connection, or a request of one, it ends with it: what the panic left half done
// is not gone on with.
func (n *Net) Panicked(call string, h Handle, value any, stack []byte) Result {
	p := &guard.Panic{Value: value, Stack: stack}
	if k := h.kind() &^ kindRequest; k == kindSend || k == kindRecv {
		if c, err := n.comm(h.comm()); err == nil {
			c.memory.Fail(fmt.Errorf("%w: %s: %w", fault.ErrInternal, call, p))
		}
	}
	return n.result(call, fmt.Errorf("%w: %s", fault.ErrInternal, p.Report()))
}
