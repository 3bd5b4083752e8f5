package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/copier"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/overlay"
	"ncclmesh/transport/path"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/threads"
	"ncclmesh/transport/topology"
	"ncclmesh/transport/window"
)

// How many set-ups and closes may call verbs at once, over all connections.
const (
	makers    = 2  // for calls that create and destroy objects, which take microseconds to milliseconds
	resolvers = 16 // for calls that move queue pairs to RTR, which take up to a second

	surveyResolvers = 16 * resolvers // in a process that only examines the mesh, because it tests all nodes at once
)

// Transport is this process's end of the mesh. Its methods may be called from any thread.
type Transport struct {
	opts       Options
	log        *slog.Logger
	host       string
	process    handshake.ProcessID
	node       handshake.NodeID
	ports      []lane.Port
	page       *stats.Page                      // counters that other processes can read
	window     *window.Window                   // gives other processes access to page; nil if they have none
	settings   []handshake.Setting              // settings that are sent to peers
	localPorts atomic.Pointer[[]handshake.Port] // ports that are sent to peers, in the same order
	ep         *control.Endpoint
	data       *dataport.Endpoint // accepts the sockets of lanes
	paths      *path.Finder
	copier     *copier.Copier   // over the verbs ports
	overlay    *overlay.Overlay // routes and circuits through other nodes; nil: relaying is off
	env        conn.Env

	dataDirect        bool            // see useDataDirect
	ctx               context.Context // done after Close
	cancel            context.CancelFunc
	work              sync.WaitGroup // goroutines of connections
	idleGC            *idleGC
	making, resolving *threads.Pool
	lastID            atomic.Uint32 // last ID of a connection on which this side sends

	mu         sync.Mutex // a leaf lock
	conns      map[connKey]*conn.Conn
	listeners  map[uint32]*Listener
	repairing  map[*control.Session]chan struct{} // sessions with connections that lack lanes; a token starts the next search at once
	warned     map[string]bool
	lastWarned map[string]time.Time // time of the last warning about a repeated event, by subject
	closed     bool
}

// connKey identifies a connection: its session, which also determines whether this side sends or receives, and its ID
// in the session.
type connKey struct {
	s  *control.Session
	id uint32
}

func (k connKey) compare(other connKey) int {
	return cmp.Or(control.CompareSessions(k.s, other.s), cmp.Compare(k.id, other.id))
}

// New finds the node's ports, opens their devices and starts the control plane.
func New(o Options) (_ *Transport, err error) {
	t := &Transport{
		opts: o.withDefaults(), conns: map[connKey]*conn.Conn{},
		listeners: map[uint32]*Listener{}, warned: map[string]bool{}, lastWarned: map[string]time.Time{},
		repairing: map[*control.Session]chan struct{}{},
	}
	t.log = t.opts.Log
	t.idleGC = newIdleGC(t.opts.Machine.Clock, t.traffic, t.opts.Machine.collector(), t.caught)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.newThreads()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.host, err = t.opts.hostName(); err != nil {
		return nil, err
	}
	if t.node, err = t.opts.nodeID(); err != nil {
		return nil, err
	}
	t.process = handshake.NewProcessID(t.opts.Machine.Random)
	t.openPage()
	t.log = slog.New(warningRecorder{t.opts.Log.Handler(), t.page})
	t.env = conn.Env{
		Log: t.log, LaneWait: t.opts.LaneWait, ProofWait: t.opts.ProofWait, Clock: t.opts.Machine.Clock, Page: t.page,
		LanePool: t.making, Background: t.background, Context: t.ctx, WarnOnce: t.warnOnce, InfoOnce: t.infoOnce, Forget: t.forget,
		RequestRepair: t.requestRepair, WarnedRecently: t.recently, FlushGPU: t.opts.FlushGPU,
		Plan: func(c *conn.Conn, offered []handshake.Lane) ([]lane.Spec, error) {
			return t.paths.PlanFor(c, offered)
		},
	}
	found, err := t.awaitPorts(t.opts.Machine.Source.Discover)
	if err != nil {
		return nil, err
	}
	for _, w := range found.Warnings {
		t.log.Warn(w)
	}
	t.data = dataport.New(dataport.Config{KeepAlive: t.opts.LaneWait, PortRange: t.opts.PortRange, Network: t.opts.Machine.Network, Descriptors: t.opts.Machine.Descriptors, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Log: t.log})
	t.overlay = t.newOverlay()
	if err := t.openPorts(found); err != nil {
		return nil, err
	}
	t.copier = copier.New(t.verbsPorts(), copier.Config{Wait: t.env.Clock.Scaled(t.opts.LaneWait), Clock: t.env.Clock, Context: t.ctx, Background: t.background})
	left := t.opts.leftOut(found)
	t.settings = slices.Concat(t.opts.Settings, left)
	t.paths = t.newPaths(left)
	if err := t.listen(found); err != nil {
		return nil, err
	}
	if err := t.overlay.Start(t.ports, t.ep, t.data); err != nil {
		return nil, err
	}
	t.watch()
	t.openWindow()
	return t, nil
}

// newThreads makes the pools of threads for verbs that block.
func (t *Transport) newThreads() {
	resolving := resolvers
	if t.opts.Observes {
		resolving = surveyResolvers
	}
	k := t.opts.Machine.Clock
	t.making, t.resolving = threads.New(makers, k, t.ctx.Done()), threads.New(resolving, k, t.ctx.Done())
}

// newPaths makes the Finder that chooses the lanes of connections. The ports must be open.
func (t *Transport) newPaths(left []handshake.Setting) *path.Finder {
	return path.NewFinder(path.Config{
		Env: &t.env, Ports: t.ports, Advertised: func() []handshake.Port { return *t.localPorts.Load() },
		GIDs: t.opts.GIDs, LeftOut: left, Interfaces: t.opts.Interfaces, LaneIfs: t.opts.LaneIfs,
		QPsPerPath: t.opts.QPsPerPath, TCPStreams: t.opts.TCPStreams,
		NewID: func() uint32 { return t.lastID.Add(1) }, Add: t.add,
		Overlay: t.overlay, Circuits: t.overlay.CircuitPort, RouteWait: t.opts.RouteWait, OnlyRelay: t.opts.Relay == RelayOnly, Node: t.node,
	})
}

// newOverlay makes the overlay, or returns nil if relaying is off.
func (t *Transport) newOverlay() *overlay.Overlay {
	if t.opts.Relay == RelayOff {
		return nil
	}
	return overlay.New(overlay.Config{
		Process: t.process, Node: t.node, Hostname: t.host, Dedicated: t.opts.Dedicated, Observes: t.opts.Observes, Key: t.opts.Key,
		Memory: int64(t.opts.RelayMemory) << 20, Silence: t.env.Clock.Scaled(t.opts.LaneWait), GIDs: t.opts.GIDs,
		Network: t.opts.Machine.Network, PortRange: t.opts.PortRange, Clock: t.opts.Machine.Clock,
		Random: t.opts.Machine.Random, Log: t.log, Context: t.ctx, Counts: t.page.Relay(),
		Cables: t.cablePorts, PortsOf: func(s *control.Session) []handshake.Port { return t.paths.PortsOf(s) },
		Background: t.background, NoteWork: t.idleGC.noteWork,
	})
}

// listen starts the control plane.
func (t *Transport) listen(found *topology.Node) (err error) {
	mesh := map[string]bool{}
	for _, p := range t.ports {
		if p.Kind() == lane.Verbs { // the configuration does not tell which plain interfaces belong to the mesh
			mesh[p.Now().Netdev] = true
		}
	}
	addrs, err := t.opts.setUpAddrs(found, mesh)
	if err != nil {
		return err
	}
	t.ep, err = control.New(control.Config{
		Process: t.process, PID: t.opts.Machine.pid(), Node: t.node, Hostname: t.host, NeighbourSecret: t.overlay.Secret(), Cable: t.isCable,
		Addrs:     addrs,
		Ports:     func() []handshake.Port { return *t.localPorts.Load() },
		Settings:  func() []handshake.Setting { return t.settings },
		Differ:    t.settingsDiffer,
		Mesh:      t.onMesh,
		PortRange: t.opts.PortRange, Network: t.opts.Machine.Network, Descriptors: t.opts.Machine.Descriptors, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock,
		LaneWait: t.opts.LaneWait,
		Log:      t.log,
		Message:  t.message,
		Dead:     t.dead,
		Busy:     t.needsPeer,
		Moved:    t.moved,
	})
	return err
}

// needsPeer reports whether the peer of a session is still needed: by connections, by relayed circuits, or because a
// listener is open here and the peer may be about to connect.
func (t *Transport) needsPeer(s *control.Session) bool {
	if len(t.connsOf(s)) > 0 || t.overlay.Uses(s) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.listeners) > 0 && !s.Dialled() && !s.Neighbour()
}

// onMesh reports whether an address is one of an RDMA port.
func (t *Transport) onMesh(a netip.Addr) bool {
	return slices.ContainsFunc(t.ports, func(p lane.Port) bool {
		return p.Kind() == lane.Verbs && slices.ContainsFunc(p.Now().Addrs, func(own netip.Prefix) bool { return own.Addr() == a.Unmap() })
	})
}

// describe stores the description of the ports that is sent to peers, and updates the page.
func (t *Transport) describe() {
	described := topology.Describe(path.Now(t.ports), t.opts.GIDs)
	for i, p := range t.ports {
		p.Describe(&described[i])
	}
	t.localPorts.Store(&described)
	t.showPorts()
}

// Device returns the device to report to NCCL: all RDMA ports as one, or all plain interfaces if no RDMA port is up.
func (t *Transport) Device() topology.Device {
	d := t.aggregate()
	d.DataDirect = t.dataDirectPath()
	return d
}

func (t *Transport) aggregate() topology.Device {
	ports := path.Now(t.ports)
	rdma := slices.DeleteFunc(slices.Clone(ports), func(p topology.Port) bool { return p.Device == "" })
	if slices.ContainsFunc(rdma, func(p topology.Port) bool { return p.Active }) {
		return topology.Aggregate(rdma)
	}
	return topology.Aggregate(slices.DeleteFunc(ports, func(p topology.Port) bool { return p.Device != "" }))
}

// message routes a session's message. It runs on the session's goroutine and does not block.
func (t *Transport) message(s *control.Session, m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Open:
		if m.Epoch == 0 { // another epoch concerns an existing connection
			t.opened(s, m)
			return
		}
	case *handshake.Ports:
		t.paths.PeerChanged(s, m.Ports)
		t.repair(s)
		return
	}
	if t.overlay.Message(s, m) {
		return
	}
	id, ok := connOf(m)
	if !ok {
		return
	}
	t.mu.Lock()
	c := t.conns[connKey{s, id}]
	t.mu.Unlock()
	if c == nil {
		t.log.Debug("message for a connection that has ended", "peer", s.Name(), "conn", id, "type", m.Type())
		return
	}
	c.Deliver(m)
}

// connOf returns the ID of the connection that a message concerns.
func connOf(m handshake.Message) (uint32, bool) {
	switch m := m.(type) {
	case *handshake.Open:
		return m.Conn, true
	case *handshake.Accept:
		return m.Conn, true
	case *handshake.Connected:
		return m.Conn, true
	case *handshake.Validated:
		return m.Conn, true
	case *handshake.LaneDown:
		return m.Conn, true
	case *handshake.Report:
		return m.Conn, true
	case *handshake.Want:
		return m.Conn, true
	case *handshake.Window:
		return m.Conn, true
	case *handshake.WindowEnd:
		return m.Conn, true
	case *handshake.Refuse:
		return m.Conn, true
	case *handshake.Bye:
		return m.Conn, true
	}
	return 0, false
}

// dead handles the end of a session: it ends all its connections, and the wait for the connection that the session was
// dialled for.
func (t *Transport) dead(s *control.Session, err error) {
	kind, what := kindOf(err), "can no longer be reached"
	if kind == fault.ErrPeerGone {
		what = "is gone"
	}
	if err == nil {
		err = errors.New("it ended its work")
	}
	t.paths.PeerGone(s)
	t.overlay.SessionEnded(s)
	t.mu.Lock()
	l := t.listeners[s.PendingListen()]
	t.mu.Unlock()
	if l != nil {
		l.peerLost(fmt.Errorf("%w: process %v on %s, which was to connect to %s, %s: %w", kind, s.Peer().Process, s.Name(), s.LocalName(), what, err))
	}
	unexpected := false
	for _, c := range t.connsOf(s) {
		if c.PeerGone(fmt.Errorf("%w: %v: process %v on %s %s: %w", kind, c, s.Peer().Process, s.Name(), what, err)) {
			unexpected = true
		}
	}
	if unexpected { // otherwise both sides have closed their connections, as they do when a job ends
		t.page.AddNotice(fmt.Sprintf("process %v on %s %s: %v", s.Peer().Process, s.Name(), what, err))
	}
}

// connsOf returns the connections of a session.
func (t *Transport) connsOf(s *control.Session) []*conn.Conn {
	return t.connsWhere(func(k connKey) bool { return k.s == s })
}

// all is a condition for connsWhere that selects all connections.
func all(connKey) bool { return true }

// connsWhere returns the connections for which the function returns true, ordered by key, because callers must not
// depend on the order of a map.
func (t *Transport) connsWhere(which func(connKey) bool) (some []*conn.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []connKey
	for k := range t.conns {
		if which(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, connKey.compare)
	for _, k := range keys {
		some = append(some, t.conns[k])
	}
	return some
}

// add registers a connection, so that messages reach it. It fails if the ID is taken or the session has ended.
func (t *Transport) add(c *conn.Conn) error {
	k := connKey{c.Session, c.ID}
	c.Show(t.page)
	t.mu.Lock()
	_, taken := t.conns[k]
	if !taken {
		t.conns[k] = c
	}
	t.mu.Unlock()
	switch {
	case taken:
		c.Hide()
		return fmt.Errorf("%w: connection %d of %s exists", fault.ErrProtocol, c.ID, c.Session.Name())
	case !c.Session.Alive(): // checked after dead can see the new entry
		t.forget(c)
		return fmt.Errorf("%w: process %v on %s ended its session", fault.ErrPeerGone, c.Session.Peer().Process, c.Session.Name())
	}
	return nil
}

// forget removes a connection that add registered.
func (t *Transport) forget(c *conn.Conn) {
	k := connKey{c.Session, c.ID}
	t.mu.Lock()
	if t.conns[k] == c {
		delete(t.conns, k)
	}
	t.mu.Unlock()
	c.Hide()
}

// guarded calls f, and returns a panic in it as an error.
func (t *Transport) guarded(what string, f func() error) error {
	return fault.Guarded(t.log, what, f)
}

// caught logs a panic of a goroutine whose failure has no other effect.
func (t *Transport) caught(p *guard.Panic) { fault.Panicked(t.log, "in the background", p) }

// background runs f on a goroutine that Close waits for. After Close has begun it runs f before it returns. A panic in
// f is only logged, so that it does not end the process: f itself has to report it where needed.
func (t *Transport) background(f func()) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		guard.Run(f, t.caught)
		return
	}
	t.work.Add(1)
	t.mu.Unlock()
	go func() {
		defer t.work.Done()
		defer t.idleGC.noteWork()
		guard.Run(f, t.caught)
	}()
}

// moved returns a number that changes when a connection of a session moves data.
func (t *Transport) moved(s *control.Session) (n uint64) {
	for _, c := range t.connsOf(s) {
		n += c.Progress()
	}
	return n
}

// traffic returns a number that changes when any connection moves data.
func (t *Transport) traffic() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		n += c.Progress()
	}
	return n
}

// FlushBeforeExit waits until the peers' kernels have received the sent data of all connections, closed ones included,
// for at most flushTimeout. It is called when the process is about to end.
func (t *Transport) FlushBeforeExit() {
	ctx, cancel := t.env.Clock.WithTimeout(context.Background(), t.env.Clock.Scaled(flushTimeout))
	defer cancel()
	for _, c := range t.connsWhere(all) {
		c.AwaitSent(ctx)
	}
}

// flushTimeout is how long a process that ends waits for slow peers.
const flushTimeout = 2 * time.Second

// Close closes all open connections, destroys queue pairs without lingering, and ends all sessions with a Bye. No
// goroutine, descriptor or verbs object is left, with one exception: if the process relays circuits and is not
// dedicated to that, relaying continues in the background until the circuits have ended.
func (t *Transport) Close() error {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	listeners := slices.SortedFunc(maps.Values(t.listeners), func(a, b *Listener) int { return cmp.Compare(a.l.ID, b.l.ID) })
	t.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	t.work.Wait() // set-ups end with the context, and queue pairs stop lingering
	for _, c := range t.connsWhere(all) {
		errs = append(errs, c.Close())
	}
	errs = append(errs, t.overlay.StopDiscovery()) // so that other nodes do not choose this one as a relay any more
	if n := t.Relaying().Now; n > 0 && !t.opts.Dedicated {
		t.log.Info(fmt.Sprintf("%d circuits of other nodes are relayed by this process, which continues until they end", n))
		go guard.Run(t.waitForCircuits, t.caught)
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, t.shutDown())...)
}

// waitForCircuits waits until no circuit is relayed any more, and then shuts down.
func (t *Transport) waitForCircuits() {
	for t.Relaying().Now > 0 {
		t.env.Clock.Sleep(t.env.Clock.Scaled(circuitPoll))
	}
	_ = t.shutDown() // no caller is left to return the error to
}

const circuitPoll = 100 * time.Millisecond

// shutDown closes the parts that remain after the connections are closed.
func (t *Transport) shutDown() error {
	errs := []error{t.overlay.Close()}
	if t.ep != nil {
		st := t.ep.Stats()
		errs = append(errs, t.ep.Close())
		t.log.Info(fmt.Sprintf("control plane closed: %v", st))
	}
	if t.data != nil {
		errs = append(errs, t.data.Close())
	}
	if t.copier != nil {
		errs = append(errs, t.copier.Close())
	}
	for _, p := range t.ports {
		errs = append(errs, p.Close())
	}
	t.ports = nil
	t.idleGC.close()
	errs = append(errs, t.closePage())
	return errors.Join(errs...)
}

// Copier returns what copies memory within the process by its adapters. It has no adapter if the process uses no RDMA port.
func (t *Transport) Copier() *copier.Copier { return t.copier }

// verbsPorts returns the RDMA ports.
func (t *Transport) verbsPorts() (all []*verbs.Port) {
	for _, p := range t.ports {
		if v, ok := p.(*verbs.Port); ok {
			all = append(all, v)
		}
	}
	return all
}

// Paths returns the Finder, which knows the paths to the peers.
func (t *Transport) Paths() *path.Finder { return t.paths }
