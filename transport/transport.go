package transport

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/control"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/topology"
)

// Transport is this process's end of the mesh. Its methods may be called from
// any thread.
type Transport struct {
	opts  Options
	log   *slog.Logger
	host  string
	ports []*port
	told  atomic.Pointer[[]handshake.Port] // what peers are told of ports, same order
	ep    *control.Endpoint
	data  *dataport.Endpoint // where sockets of lanes come in

	ctx               context.Context // ends at Close
	closing           <-chan struct{}
	cancel            context.CancelFunc
	work              sync.WaitGroup // goroutines of connections
	tidy              *tidier
	making, resolving *crew
	busy              atomic.Uint64 // see traffic
	lastID            atomic.Uint32 // of connections this side sends on

	mu        sync.Mutex
	conns     map[connKey]*conn
	listeners map[uint32]*Listener
	warned    map[string]bool
	known     map[handshake.ProcessID]*pathSet
	answers   map[handshake.ProcessID]*answers
	peerPorts map[*control.Session][]handshake.Port // of peers whose ports have changed
	closed    bool
}

// connKey names a connection: its session, which also says which half this is,
// and its number there.
type connKey struct {
	s  *control.Session
	id uint32
}

// New finds the node's ports, opens their devices and starts the control plane.
func New(o Options) (_ *Transport, err error) {
	t := &Transport{
		opts: o.withDefaults(), conns: map[connKey]*conn{},
		listeners: map[uint32]*Listener{}, warned: map[string]bool{},
		known: map[handshake.ProcessID]*pathSet{}, answers: map[handshake.ProcessID]*answers{}, peerPorts: map[*control.Session][]handshake.Port{},
	}
	t.log = t.opts.Log
	t.tidy = newTidier(t.traffic, t.caught)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.closing = t.ctx.Done()
	t.making, t.resolving = newCrew(makers, t.closing), newCrew(resolvers, t.closing)
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("read the host name: %w", err)
	}
	t.host, _, _ = strings.Cut(t.host, ".")
	if t.opts.HostID != "" {
		t.host = t.opts.HostID
	}
	node, err := nodeID(t.opts.HostID)
	if err != nil {
		return nil, err
	}
	found, err := topology.Discover(topology.Source{Sysfs: t.opts.Sysfs})
	if err != nil {
		return nil, err
	}
	for _, w := range found.Warnings {
		t.log.Warn(w)
	}
	if err := t.openPorts(found); err != nil {
		return nil, err
	}
	mesh, onMesh := map[string]bool{}, map[netip.Addr]bool{}
	for _, p := range t.ports {
		if p.plain() {
			continue // which of them is the mesh is not known
		}
		mesh[p.Netdev] = true
		for _, a := range p.Addrs {
			onMesh[a.Addr().Unmap()] = true
		}
	}
	t.data = dataport.New(dataport.Config{KeepAlive: t.opts.LaneWait, TimeScale: t.opts.TimeScale, Log: t.log})
	t.ep, err = control.New(control.Config{
		Process: handshake.NewProcessID(), Node: node, Hostname: t.host,
		Addrs:     topology.BootstrapAddrs(found.Links, t.opts.Interfaces, t.opts.SocketFamily, mesh),
		Ports:     func() []handshake.Port { return *t.told.Load() },
		Mesh:      func(a netip.Addr) bool { return onMesh[a.Unmap()] },
		LaneWait:  t.opts.LaneWait,
		TimeScale: t.opts.TimeScale,
		Log:       t.log,
		Message:   t.message,
		Dead:      t.dead,
		Busy:      func(s *control.Session) bool { return len(t.connsOf(s)) > 0 },
	})
	if err == nil {
		t.watch()
	}
	return t, err
}

// openPorts finds the ports that the configuration selects: those of RDMA, and
// after them the interfaces that TCP can use.
func (t *Transport) openPorts(n *topology.Node) error {
	var noRDMA, noTCP error
	if t.opts.Transport == TransportTCP {
		noRDMA = errors.New("NCCL_MESH_TRANSPORT is tcp, which rules RDMA out")
	} else {
		noRDMA = t.openDevices(n)
	}
	rdma := len(t.ports)
	if t.opts.Transport == TransportRDMA {
		noTCP = errors.New("NCCL_MESH_TRANSPORT is rdma, which rules TCP out")
	} else if err := t.openPlain(n); err != nil {
		return err
	} else if len(t.ports) == rdma {
		noTCP = fmt.Errorf("%w: no network interface that NCCL_SOCKET_IFNAME and NCCL_MESH_IFNAME select is up and has an address", ErrNoPorts)
	}
	switch {
	case len(t.ports) == 0:
		return fmt.Errorf("%w; %w", noRDMA, noTCP)
	case noRDMA != nil && len(n.Ports) > 0:
		t.log.Warn(fmt.Sprintf("TCP is used, slower than RDMA, although there is %s: %v", portNames(n.Ports), oneLine(noRDMA)))
	case noRDMA != nil:
		t.log.Info("TCP is used, as there is no RDMA device")
	}
	t.describe()
	for i, p := range t.ports {
		t.log.Info(fmt.Sprintf("port %d: %s", i, p.Summary(t.opts.GIDs)))
	}
	return nil
}

// portNames lists ports for people.
func portNames(ports []topology.Port) string {
	var names []string
	for _, p := range ports {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// oneLine is what several errors say, joined as those of one cause.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// openDevices opens the devices of all RDMA ports that the configuration selects.
func (t *Transport) openDevices(n *topology.Node) error {
	var selected []topology.Port
	var seen []string
	for _, p := range n.Ports {
		switch {
		case !t.opts.HCA.Match(p.Device, p.Num):
			seen = append(seen, p.String()+" is left out by NCCL_IB_HCA")
		case !p.Active:
			seen = append(seen, p.String()+" is "+p.State)
		default:
			selected = append(selected, p)
		}
	}
	if len(selected) == 0 {
		if len(seen) == 0 {
			seen = append(seen, "there is no RDMA device under "+t.opts.Sysfs+"/class/infiniband")
		}
		return fmt.Errorf("%w: %s; check cables and drivers with ibv_devinfo", ErrNoPorts, strings.Join(seen, ", "))
	}
	lib, err := ibv.Load(t.opts.Libraries...)
	if err != nil {
		return err
	}
	if err := lib.ForkInit(); err != nil {
		t.log.Debug("ibv_fork_init failed", "err", err)
	}
	devices, err := lib.Devices()
	if err != nil {
		return err
	}
	byName := map[string]*ibv.Device{}
	for _, d := range devices {
		byName[d.Name()] = d
	}
	var errs []error
	for _, p := range selected {
		d := byName[p.Device]
		if d == nil {
			errs = append(errs, fmt.Errorf("%s is in sysfs but libibverbs does not list it; is its provider library (ibverbs-providers) installed, and /dev/infiniband visible here?", p.String()))
			continue
		}
		o, err := openPort(lib, d, p, t.log)
		if err != nil {
			errs = append(errs, fmt.Errorf("open %s: %w", p.String(), err))
			continue
		}
		o.index = uint8(len(t.ports))
		t.ports = append(t.ports, o)
	}
	if len(t.ports) == 0 {
		return fmt.Errorf("%w: %w", ErrNoPorts, errors.Join(errs...))
	}
	for _, err := range errs {
		t.log.Warn("a port is not used", "err", err)
	}
	return nil
}

// nodeID identifies the node: boot id and network namespace, or what the user
// gave instead.
func nodeID(hostID string) (handshake.NodeID, error) {
	text := "host " + hostID
	if hostID == "" {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return handshake.NodeID{}, fmt.Errorf("identify the node: %w; set NCCL_HOSTID", err)
		}
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
			return handshake.NodeID{}, fmt.Errorf("identify the network namespace: %w; set NCCL_HOSTID", err)
		}
		text = fmt.Sprintf("boot %s net %d", strings.TrimSpace(string(boot)), st.Ino)
	}
	sum := sha256.Sum256([]byte(text))
	return handshake.NodeID(sum[:16]), nil
}

// topologyPorts are the ports as package topology knows them, in their order.
func (t *Transport) topologyPorts() []topology.Port {
	ports := make([]topology.Port, len(t.ports))
	for i, p := range t.ports {
		ports[i] = p.now().Port
	}
	return ports
}

// describe writes down what peers are told of the ports.
func (t *Transport) describe() {
	told := topology.Describe(t.topologyPorts(), t.opts.GIDs)
	for i, p := range t.ports {
		p.describe(&told[i])
	}
	t.told.Store(&told)
}

// portsOf are the ports of a session's peer, as it last described them.
func (t *Transport) portsOf(s *control.Session) []handshake.Port {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.peerPorts[s]; ok {
		return p
	}
	return s.Peer().Ports
}

// Device is what NCCL is told of the node: all its RDMA ports as one, or all its
// interfaces when it has none.
func (t *Transport) Device() topology.Device {
	ports := t.topologyPorts()
	rdma := slices.DeleteFunc(slices.Clone(ports), func(p topology.Port) bool { return p.Device == "" })
	if len(rdma) > 0 {
		ports = rdma
	}
	return topology.Aggregate(ports)
}

// message routes a session's message. It runs on the session's goroutine and
// does not block.
func (t *Transport) message(s *control.Session, m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Open:
		t.opened(s, m)
		return
	case *handshake.Ports:
		t.portsChanged(s, m)
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
		t.withdrawTrial(s, id)
		t.log.Debug("message for a connection that is no more", "peer", s.Name(), "conn", id, "type", m.Type())
		return
	}
	c.deliver(m)
}

// connOf is the number of the connection that a message is about.
func connOf(m handshake.Message) (uint32, bool) {
	switch m := m.(type) {
	case *handshake.Accept:
		return m.Conn, true
	case *handshake.Connected:
		return m.Conn, true
	case *handshake.Proved:
		return m.Conn, true
	case *handshake.LaneDown:
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
	kind, what := kindOf(err), "can be talked to no more"
	if kind == ErrPeerGone {
		what = "is gone"
	}
	if err == nil {
		err = errors.New("it ended its work")
	}
	if s.Dialled() { // else whose paths they are is only what the peer said
		t.forgetPaths(s)
	}
	t.mu.Lock()
	delete(t.peerPorts, s)
	l := t.listeners[s.Owed()]
	t.mu.Unlock()
	if l != nil {
		l.orphan(fmt.Errorf("%w: process %v on %s, which was to connect to %s, %s: %w", kind, s.Peer().Process, s.Name(), s.LocalName(), what, err))
	}
	for _, c := range t.connsOf(s) {
		c.peerEnded(ending{err: fmt.Errorf("%w: %v: process %v on %s %s: %w", kind, c, s.Peer().Process, s.Name(), what, err), leftAt: time.Now(), gone: true})
	}
}

// connsOf returns the connections of a session.
func (t *Transport) connsOf(s *control.Session) []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	var conns []*conn
	for k, c := range t.conns {
		if k.s == s {
			conns = append(conns, c)
		}
	}
	return conns
}

// add makes messages reach c. It fails when the number is taken or the session
// is dead.
func (t *Transport) add(c *conn) error {
	k := connKey{c.s, c.id}
	t.mu.Lock()
	_, taken := t.conns[k]
	if !taken {
		t.conns[k] = c
	}
	t.mu.Unlock()
	switch {
	case taken:
		return fmt.Errorf("%w: connection %d of %s exists", ErrProtocol, c.id, c.s.Name())
	case !c.s.Alive(): // checked after the entry is visible to dead
		t.forget(c)
		return fmt.Errorf("%w: process %v on %s ended its session", ErrPeerGone, c.s.Peer().Process, c.s.Name())
	}
	return nil
}

func (t *Transport) forget(c *conn) {
	k := connKey{c.s, c.id}
	t.mu.Lock()
	if t.conns[k] == c {
		delete(t.conns, k)
	}
	t.mu.Unlock()
}

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

// warnOnce logs a warning the first time it is given.
func (t *Transport) warnOnce(text string) { t.warnOnceAbout(text, text) }

// warnOnceAbout logs the first warning about a subject.
func (t *Transport) warnOnceAbout(subject, text string) {
	t.mu.Lock()
	again := t.warned[subject]
	t.warned[subject] = true
	t.mu.Unlock()
	if !again {
		t.log.Warn(text)
	}
}

// Close ends everything: connections still open are closed, queue pairs no
// longer linger, the control plane says goodbye. No goroutine, descriptor or
// verbs object is left.
func (t *Transport) Close() error {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	listeners := slices.Collect(maps.Values(t.listeners))
	t.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	t.work.Wait() // set-ups end with the context, queue pairs stop lingering
	t.mu.Lock()
	conns := slices.Collect(maps.Values(t.conns))
	t.mu.Unlock()
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	if t.ep != nil {
		st := t.ep.Stats()
		errs = append(errs, t.ep.Close())
		t.log.Info(fmt.Sprintf("control plane closed: %v", st))
	}
	if t.data != nil {
		errs = append(errs, t.data.Close())
	}
	for _, p := range t.ports {
		errs = append(errs, p.close())
	}
	t.ports = nil
	t.tidy.close()
	return errors.Join(errs...)
}
