package ncclnet

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
	"ncclmesh/tuner"
)

// Name is the network's name, as in NCCL_NET=mesh.
const Name = "Mesh"

// A Host is what the surrounding process lends the plugin. Go's own copy of the
// environment lacks what the host set after it started.
type Host struct {
	Getenv  func(name string) string
	Environ func() []string
}

// A Net is the plugin of one process.
type Net struct {
	host   Host
	open   func(transport.Options) (network, error)
	log    *slog.Logger
	level  slog.LevelVar
	logger atomic.Pointer[Logger]
	saying sync.Mutex // held while the logger is called: who waits for its turn inside C keeps a thread

	contexts table[netContext]
	listens  table[listenComm]
	dials    table[dial]
	sends    table[sendComm]
	recvs    table[recvComm]
	regions  table[region]

	shared atomic.Uint64 // the context of callers that have none, or 0

	mu     sync.Mutex // guards what follows, while init and finalize run
	net    network    // nil when no context is open
	users  int        // contexts, until their Finalize is through
	device topology.Device
	tuning config.Tuning
	tables map[tuner.Mesh]*tuner.Table // made so far
}

// A netContext is one communicator's view: what it opened ends with it.
type netContext struct {
	net network
}

// New returns a plugin that has opened nothing yet.
func New(host Host) *Net { return newNet(host, openTransport) }

func newNet(host Host, open func(transport.Options) (network, error)) *Net {
	n := &Net{
		host:     host,
		open:     open,
		contexts: table[netContext]{kind: kindContext},
		listens:  table[listenComm]{kind: kindListen},
		dials:    table[dial]{kind: kindDial},
		sends:    table[sendComm]{kind: kindSend},
		recvs:    table[recvComm]{kind: kindRecv},
		regions:  table[region]{kind: kindRegion},
		tables:   map[tuner.Mesh]*tuner.Table{},
	}
	n.log = slog.New(&logHandler{logger: n.write, level: &n.level})
	return n
}

// Init opens a context for one communicator (v11 and later). trafficClass is
// the communicator's, or -1.
func (n *Net) Init(logger Logger, trafficClass int) (Handle, Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logger.Store(&logger)
	h, err := n.initLocked(trafficClass)
	return h, n.result("init", err)
}

// InitShared opens the one context of a process (before v11), which stays open:
// these versions never say that they are done. Later calls change only the
// logger.
func (n *Net) InitShared(logger Logger) Result {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logger.Store(&logger)
	if n.shared.Load() != 0 {
		return ncclSuccess
	}
	h, err := n.initLocked(-1)
	n.shared.Store(uint64(h))
	return n.result("init", err)
}

func (n *Net) initLocked(trafficClass int) (Handle, error) {
	if n.net == nil {
		if err := n.openLocked(trafficClass); err != nil {
			return 0, err
		}
	}
	h, err := n.contexts.put(&netContext{n.net})
	if err == nil {
		n.users++
	}
	return h, err
}

func (n *Net) openLocked(trafficClass int) error {
	n.level.Set(slog.LevelInfo)
	c, err := config.Read(n.host.Getenv)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	n.level.Set(c.Level)
	for _, line := range config.Unknown(n.host.Environ()) {
		n.log.Warn(line)
	}
	n.log.Info(fmt.Sprintf("build %s, protocol %d", handshake.Build(), handshake.Version))
	options := c.OfCommunicator(trafficClass)
	options.Log = n.log
	net, err := n.open(options)
	if err != nil {
		return err
	}
	n.net, n.device, n.tuning = net, net.Device(), c.Tuning
	return nil
}

// Finalize closes a context and whatever it left open: an aborted communicator
// leaves its half-open connections behind. The last context takes the transport
// with it. Zero is accepted: some releases finalize what they failed to init.
func (n *Net) Finalize(h Handle) Result {
	if h == 0 {
		return ncclSuccess
	}
	if _, err := n.contexts.remove(h); err != nil {
		return n.result("finalize", err)
	}
	n.reap(h)

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.users--; n.users > 0 { // another may be reaping what the transport is needed for
		return ncclSuccess
	}
	err := n.net.Close()
	n.net = nil
	r := n.result("finalize", err)
	n.logger.Store(nil) // it belongs to a library that may now be unloaded
	return r
}

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
		closed("listener", l.listener.Close())
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
func (n *Net) result(call string, err error) Result { return n.resultAt(1, call, err) }

// resultAt is result for a caller so many calls up.
func (n *Net) resultAt(up int, call string, err error) Result {
	if err == nil {
		return ncclSuccess
	}
	r := resultOf(err)
	var pc [1]uintptr
	runtime.Callers(2+up, pc[:])
	record := slog.NewRecord(time.Now(), slog.LevelWarn, fmt.Sprintf("%s: %v (%v)", call, err, r), pc[0])
	_ = n.log.Handler().Handle(context.Background(), record) // it never fails
	return r
}

// Panicked reports a panic that was caught in a call about h. If that is a
// connection, or a request of one, it ends with it: what the panic left half done
// is not gone on with.
func (n *Net) Panicked(call string, h Handle, value any, stack []byte) Result {
	p := &guard.Panic{Value: value, Stack: stack}
	if k := h.kind() &^ kindRequest; k == kindSend || k == kindRecv {
		if c, err := n.comm(h.comm()); err == nil {
			c.memory.Fail(fmt.Errorf("%w: %s: %w", transport.ErrInternal, call, p))
		}
	}
	return n.result(call, fmt.Errorf("%w: %s", transport.ErrInternal, p.Report()))
}

func (n *Net) write(level, subsystems int, file string, line int, text string) {
	n.saying.Lock()
	defer n.saying.Unlock()
	if l := n.logger.Load(); l != nil && *l != nil {
		(*l)(level, subsystems, file, line, text)
	}
}
