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
	"ncclmesh/transport/crew"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/hail"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/mesh"
	"ncclmesh/transport/path"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/topology"
	"ncclmesh/transport/window"
)

// How many set-ups and closes may be inside verbs at once, of all connections
// together.
const (
	makers    = 2  // that make and destroy, which takes microseconds to milliseconds
	resolvers = 16 // that take queue pairs to RTR, which takes up to a second

	lookers = 16 * resolvers // of a process that looks at the mesh: it tries all nodes at once, and ends
)

// Transport is this process's end of the mesh. Its methods may be called from
// any thread.
type Transport struct {
	opts    Options
	log     *slog.Logger
	host    string
	process handshake.ProcessID
	node    handshake.NodeID
	ports   []lane.Port
	page    *stats.Page                      // what other processes see
	window  *window.Window                   // where they do; or nil
	says    []handshake.Setting              // what peers are told of settings
	told    atomic.Pointer[[]handshake.Port] // what peers are told of ports, same order
	ep      *control.Endpoint
	data    *dataport.Endpoint // where sockets of lanes come in
	paths   *path.Finder
	over    map[lane.Port]lane.Port // ports for circuits, of those for queue pairs
	met     atomic.Bool             // what follows is there: relaying is not off
	hail    *hail.Hailer
	mesh    *mesh.Mesh
	relay   *relay.Relay
	engine  *engine.Engine
	retire  atomic.Bool   // nothing more is carried for others
	carries chan struct{} // a token says that what is carried for others has changed
	env     conn.Env

	ctx               context.Context // ends at Close
	cancel            context.CancelFunc
	work              sync.WaitGroup // goroutines of connections
	tidy              *tidier
	making, resolving *crew.Crew
	lastID            atomic.Uint32 // of connections this side sends on

	mu        sync.Mutex // a leaf
	conns     map[connKey]*conn.Conn
	listeners map[uint32]*Listener
	mending   map[*control.Session]chan struct{} // sessions whose connections lack lanes; a token has them looked at at once
	warned    map[string]bool
	lately    map[string]time.Time // when the user was warned of what happens again and again
	closed    bool
}

// connKey names a connection: its session, which also says which half this is,
// and its number there.
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
		listeners: map[uint32]*Listener{}, warned: map[string]bool{}, lately: map[string]time.Time{},
		mending: map[*control.Session]chan struct{}{}, over: map[lane.Port]lane.Port{},
		carries: make(chan struct{}, 1),
	}
	t.log = t.opts.Log
	t.tidy = newTidier(t.opts.Machine.Clock, t.traffic, t.opts.Machine.collector(), t.caught)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	resolving := resolvers
	if t.opts.Observes {
		resolving = lookers
	}
	t.making, t.resolving = crew.New(makers, t.opts.Machine.Clock, t.ctx.Done()), crew.New(resolving, t.opts.Machine.Clock, t.ctx.Done())
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
	t.log = slog.New(teller{t.opts.Log.Handler(), t.page})
	t.env = conn.Env{
		Log: t.log, LaneWait: t.opts.LaneWait, ProofWait: t.opts.ProofWait, TimeScale: t.opts.TimeScale, Clock: t.opts.Machine.Clock, Page: t.page,
		LanePool: t.making, Background: t.background, Context: t.ctx, WarnOnce: t.warnOnce, InfoOnce: t.sayOnce, Forget: t.forget,
		RequestRepair: t.lacks, WarnedRecently: t.again,
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
	t.data = dataport.New(dataport.Config{KeepAlive: t.opts.LaneWait, PortRange: t.opts.PortRange, Network: t.opts.Machine.Network, Descriptors: t.opts.Machine.Descriptors, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, TimeScale: t.opts.TimeScale, Log: t.log})
	if err := t.openPorts(found); err != nil {
		return nil, err
	}
	left := t.opts.leftOut(found)
	t.says = slices.Concat(t.opts.Settings, left)
	t.paths = t.newPaths(left)
	if err := t.listen(found); err != nil {
		return nil, err
	}
	if err := t.meet(); err != nil {
		return nil, err
	}
	t.watch()
	t.openWindow()
	return t, nil
}

// newPaths is who chooses the lanes of connections. The ports are open.
func (t *Transport) newPaths(left []handshake.Setting) *path.Finder {
	paths := path.NewFinder(path.Config{
		Env: &t.env, Ports: t.ports, Advertised: func() []handshake.Port { return *t.told.Load() },
		GIDs: t.opts.GIDs, LeftOut: left, Interfaces: t.opts.Interfaces, LaneIfs: t.opts.LaneIfs,
		QPsPerPath: t.opts.QPsPerPath, TCPStreams: t.opts.TCPStreams,
		NewID: func() uint32 { return t.lastID.Add(1) }, Add: t.add,
		Circuits: t.circuitPort, Others: t.others, RouteWait: t.opts.RouteWait, OnlyRelay: t.opts.Relay == RelayOnly, Node: t.node,
	})
	if t.opts.Relay != RelayOff {
		paths.Routes, paths.Ends = t.routes, t.ends
	}
	return paths
}

// listen starts the control plane.
func (t *Transport) listen(found *topology.Node) (err error) {
	mesh := map[string]bool{}
	for _, p := range t.ports {
		if p.Kind() == lane.Verbs { // which of the others is the mesh is not known
			mesh[p.Now().Netdev] = true
		}
	}
	addrs, err := t.opts.setUpAddrs(found, mesh)
	if err != nil {
		return err
	}
	var secret *handshake.Secret
	if t.opts.Relay != RelayOff {
		s := handshake.HailSecret([]byte(t.opts.Key))
		secret = &s
	}
	t.ep, err = control.New(control.Config{
		Process: t.process, PID: t.opts.Machine.pid(), Node: t.node, Hostname: t.host, NeighbourSecret: secret, Cable: t.isCable,
		Addrs:     addrs,
		Ports:     func() []handshake.Port { return *t.told.Load() },
		Settings:  func() []handshake.Setting { return t.says },
		Differ:    t.differ,
		Mesh:      t.onMesh,
		PortRange: t.opts.PortRange, Network: t.opts.Machine.Network, Descriptors: t.opts.Machine.Descriptors, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock,
		LaneWait:  t.opts.LaneWait,
		TimeScale: t.opts.TimeScale,
		Log:       t.log,
		Message:   t.message,
		Dead:      t.dead,
		Busy:      t.needs,
		Moved:     t.moved,
	})
	return err
}

// needs reports whether the peer of a session is still needed: by connections, by what is
// carried for others, and by whoever listens here, as the peer may be about to connect.
func (t *Transport) needs(s *control.Session) bool {
	if len(t.connsOf(s)) > 0 || t.met.Load() && t.relay.Uses(s) {
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

// describe writes down what peers are told of the ports.
func (t *Transport) describe() {
	told := topology.Describe(path.Now(t.ports), t.opts.GIDs)
	for i, p := range t.ports {
		p.Describe(&told[i])
	}
	t.told.Store(&told)
	t.showPorts()
}

// Device is what NCCL is told of the node: all its RDMA ports as one, or all its
// interfaces when none of those is up.
func (t *Transport) Device() topology.Device {
	ports := path.Now(t.ports)
	rdma := slices.DeleteFunc(slices.Clone(ports), func(p topology.Port) bool { return p.Device == "" })
	if slices.ContainsFunc(rdma, func(p topology.Port) bool { return p.Active }) {
		return topology.Aggregate(rdma)
	}
	return topology.Aggregate(slices.DeleteFunc(ports, func(p topology.Port) bool { return p.Device != "" }))
}

// message routes a session's message. It runs on the session's goroutine and
// does not block.
func (t *Transport) message(s *control.Session, m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Open:
		if m.Epoch == 0 { // else of a connection that there is
			t.opened(s, m)
			return
		}
	case *handshake.AskMap:
		if t.met.Load() {
			t.mesh.Asked(s, m)
		}
		return
	case *handshake.Map:
		if t.met.Load() {
			t.mesh.Told(s, m)
		}
		return
	case *handshake.Carry, *handshake.Arrive, *handshake.Carried, *handshake.Drop, *handshake.Silent:
		if t.met.Load() {
			t.relay.Message(s, m)
		}
		return
	case *handshake.Ports:
		t.paths.PeerChanged(s, m.Ports)
		t.mend(s)
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

// connOf is the number of the connection that a message is about.
func connOf(m handshake.Message) (uint32, bool) {
	switch m := m.(type) {
	case *handshake.Open:
		return m.Conn, true
	case *handshake.Accept:
		return m.Conn, true
	case *handshake.Connected:
		return m.Conn, true
	case *handshake.Proved:
		return m.Conn, true
	case *handshake.LaneDown:
		return m.Conn, true
	case *handshake.Report:
		return m.Conn, true
	case *handshake.Want:
		return m.Conn, true
	case *handshake.Refuse:
		return m.Conn, true
	case *handshake.Bye:
		return m.Conn, true
	}
	return 0, false
}

// dead ends all connections of a session whose peer is gone, and the wait for the
// one that it was made for.
func (t *Transport) dead(s *control.Session, err error) {
	kind, what := kindOf(err), "can no longer be reached"
	if kind == fault.ErrPeerGone {
		what = "is gone"
	}
	if err == nil {
		err = errors.New("it ended its work")
	}
	t.paths.PeerGone(s)
	if t.met.Load() {
		t.relay.Gone(s)
		t.mesh.Gone(s)
		if t.hail.Forget(s.Peer().Process) { // whoever comes after it has to be asked for
			t.mesh.Changed()
		}
	}
	t.mu.Lock()
	l := t.listeners[s.Owed()]
	t.mu.Unlock()
	if l != nil {
		l.orphan(fmt.Errorf("%w: process %v on %s, which was to connect to %s, %s: %w", kind, s.Peer().Process, s.Name(), s.LocalName(), what, err))
	}
	news := false
	for _, c := range t.connsOf(s) {
		if c.PeerGone(fmt.Errorf("%w: %v: process %v on %s %s: %w", kind, c, s.Peer().Process, s.Name(), what, err)) {
			news = true
		}
	}
	if news { // else both have closed their connections: that is how a job ends
		t.page.AddNotice(fmt.Sprintf("process %v on %s %s: %v", s.Peer().Process, s.Name(), what, err))
	}
}

// connsOf returns the connections of a session.
func (t *Transport) connsOf(s *control.Session) []*conn.Conn {
	return t.connsWhere(func(k connKey) bool { return k.s == s })
}

// all is which connections: all of them.
func all(connKey) bool { return true }

// connsWhere returns some of the connections, ordered by their names: what follows must not
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

// add makes messages reach b. It fails when the number is taken or the session
// is dead.
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
	case !c.Session.Alive(): // checked after the entry is visible to dead
		t.forget(c)
		return fmt.Errorf("%w: process %v on %s ended its session", fault.ErrPeerGone, c.Session.Peer().Process, c.Session.Name())
	}
	return nil
}

// forget ends that.
func (t *Transport) forget(c *conn.Conn) {
	k := connKey{c.Session, c.ID}
	t.mu.Lock()
	if t.conns[k] == c {
		delete(t.conns, k)
	}
	t.mu.Unlock()
	c.Hide()
}

// guarded calls f; a panic in it becomes an error.
func (t *Transport) guarded(what string, f func() error) error {
	return fault.Guarded(t.log, what, f)
}

// caught logs a panic that nothing but a log line can come of.
func (t *Transport) caught(p *guard.Panic) { fault.Panicked(t.log, "in the background", p) }

// background runs f on a goroutine that Close waits for; once Close has begun,
// at once. What f serves has to hear of a panic by f's own doing: here it is only
// kept from ending the process.
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
		defer t.tidy.worked()
		guard.Run(f, t.caught)
	}()
}

// moved is a number that changes when a connection of a session moves data.
func (t *Transport) moved(s *control.Session) (n uint64) {
	for _, c := range t.connsOf(s) {
		n += c.Progress()
	}
	return n
}

// traffic is a number that changes when a connection of the transport moves data.
func (t *Transport) traffic() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		n += c.Progress()
	}
	return n
}

// Settle waits, a moment at most, until the peers' kernels have what was sent over
// connections, closed ones too: the process is about to end.
func (t *Transport) Settle() {
	ctx, cancel := t.env.Clock.WithTimeout(context.Background(), t.env.Scaled(partingTime))
	defer cancel()
	for _, c := range t.connsWhere(all) {
		c.AwaitSent(ctx)
	}
}

// partingTime is how long a process that ends may wait for slow peers.
const partingTime = 2 * time.Second

// Close ends everything: connections still open are closed, queue pairs no
// longer linger, the control plane says goodbye. No goroutine, descriptor or
// verbs object is left, unless the process carries for others and is not there for that
// alone: that goes on in the background until they have ended it.
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
	t.work.Wait() // set-ups end with the context, queue pairs stop lingering
	for _, c := range t.connsWhere(all) {
		errs = append(errs, c.Close())
	}
	if t.hail != nil { // who looks for a relay does not find this one any more
		errs = append(errs, t.hail.Close())
	}
	if n := t.Relaying().Now; n > 0 && !t.opts.Dedicated {
		t.log.Info(fmt.Sprintf("%d circuits of other nodes are relayed by this process, which continues until they end", n))
		go guard.Run(t.outlive, t.caught)
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, t.end())...)
}

// outlive waits until nothing is carried for others any more, and ends the rest.
func (t *Transport) outlive() {
	for t.Relaying().Now > 0 {
		t.env.Clock.Sleep(t.env.Scaled(lookEvery))
	}
	_ = t.end() // nobody is left to hear of it
}

const lookEvery = 100 * time.Millisecond

// end ends what is left when the connections are closed.
func (t *Transport) end() error {
	errs := []error{t.part()}
	if t.ep != nil {
		st := t.ep.Stats()
		errs = append(errs, t.ep.Close())
		t.log.Info(fmt.Sprintf("control plane closed: %v", st))
	}
	if t.data != nil {
		errs = append(errs, t.data.Close())
	}
	for _, p := range t.ports {
		errs = append(errs, p.Close())
	}
	t.ports = nil
	t.tidy.close()
	errs = append(errs, t.hide())
	return errors.Join(errs...)
}

// Paths are the ways to the peers, as far as they are known.
func (t *Transport) Paths() *path.Finder { return t.paths }
