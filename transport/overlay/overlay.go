package overlay

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/control"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/circuit"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
	"ncclmesh/transport/routing"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/topology"
)

// ErrOff says that there are no routes and circuits because relaying is off.
var ErrOff = errors.New("relaying is off (NCCL_MESH_RELAY=0)")

// Config is what an Overlay needs of its process.
type Config struct {
	Process   handshake.ProcessID
	Node      handshake.NodeID
	Hostname  string
	Dedicated bool   // the process only relays
	Observes  bool   // the process only examines the mesh: it relays nothing
	Key       string // shared by all nodes; "": every process at the other end of a cable is trusted

	Memory  int64         // limit of the memory of relayed circuits, in bytes
	Silence time.Duration // how long a peer may acknowledge nothing on a circuit's socket
	GIDs    topology.GIDPolicy

	Network   sock.Network   // for neighbour discovery; nil: the kernel's
	PortRange sock.PortRange // of UDP ports to query from
	Clock     clock.Clock
	Random    random.Source
	Log       *slog.Logger
	Context   context.Context // done when the process closes the transport; circuits that it relays may continue
	Counts    *stats.Relay    // counters of what is relayed

	// Cables returns the ports that may have a cable now.
	Cables func() []discovery.Port
	// PortsOf returns the current ports of a session's peer.
	PortsOf func(*control.Session) []handshake.Port
	// Background runs a function on a goroutine that ends when the process does.
	Background func(func())
	// NoteWork is called after a circuit that left garbage has ended.
	NoteWork func()
}

// Overlay is this process's part of the overlay. Its methods may be called from any goroutine, and on a nil *Overlay.
type Overlay struct {
	cfg     Config
	secret  handshake.Secret // authenticates sessions with neighbours
	retired atomic.Bool      // this process relays no new circuits
	changed chan struct{}    // holds a token after the relayed circuits have changed

	parts atomic.Pointer[parts] // nil until Start
}

// parts is what Start makes.
type parts struct {
	*Overlay
	ports     []lane.Port
	circuits  map[lane.Port]lane.Port // ports for circuits, by the verbs port that each belongs to
	sessions  *control.Endpoint
	discovery *discovery.Discovery
	routing   *routing.Router
	relay     *relay.Relay
	engine    *engine.Forwarder
}

// New makes an Overlay that does nothing until Start.
func New(cfg Config) *Overlay {
	return &Overlay{cfg: cfg, secret: handshake.NeighbourSecret([]byte(cfg.Key)), changed: make(chan struct{}, 1)}
}

// running returns the parts of the overlay; nil if relaying is off, or if Start has not returned yet.
func (o *Overlay) running() *parts {
	if o == nil {
		return nil
	}
	return o.parts.Load()
}

// Start opens neighbour discovery, and begins to route and to relay. ports are the node's ports by index, sessions the
// sessions with other processes, and data makes the sockets of circuits. On an error nothing is left open.
func (o *Overlay) Start(ports []lane.Port, sessions *control.Endpoint, data *dataport.Endpoint) error {
	if o == nil {
		return nil
	}
	p := &parts{Overlay: o, ports: ports, circuits: map[lane.Port]lane.Port{}, sessions: sessions}
	for _, at := range ports {
		if v, ok := at.(*verbs.Port); ok {
			p.circuits[v] = circuit.NewPort(v, circuit.Options{Circuits: o, GIDs: o.cfg.GIDs})
		}
	}
	c := &o.cfg
	p.engine = engine.New(engine.Config{Log: c.Log, Clock: c.Clock, Memory: c.Memory, Counts: c.Counts})
	var queuePairs relay.Maker
	if len(p.circuits) > 0 {
		queuePairs = p.engine
	}
	p.relay = relay.New(relay.Config{
		Log: c.Log, Process: c.Process, Node: c.Node, Ports: ports, GIDs: c.GIDs, Data: data, Verbs: queuePairs,
		Silence: c.Silence, Random: c.Random, Clock: c.Clock, Context: c.Context, NoteWork: c.NoteWork,
		Neighbour: p.neighbour, PortsOf: c.PortsOf, Refuse: o.refuse, Changed: o.noteChange, Counts: c.Counts,
	})
	var err error
	p.discovery, err = discovery.New(discovery.Config{
		Process: c.Process, Node: c.Node, ControlPort: sessions.Port(), Dedicated: c.Dedicated, Key: []byte(c.Key),
		Ports: c.Cables, OnNeighbour: func() { p.routing.NeighbourFound() }, // after a query, and so after Start
		PortRange: c.PortRange, Network: c.Network, Random: c.Random, Clock: c.Clock, Log: c.Log,
	})
	if err != nil {
		return errors.Join(err, p.close())
	}
	p.routing = routing.New(routing.Config{
		Own:   handshake.MapNode{Process: c.Process, Node: c.Node, Hostname: c.Hostname, Dedicated: c.Dedicated},
		Ports: p.routingPorts, Discovery: p.discovery, Sessions: routingSessions{p},
		Background: c.Background, Context: c.Context, Random: c.Random, Clock: c.Clock, Log: c.Log,
	})
	o.parts.Store(p)
	return nil
}

// close ends all circuits, those of this process and those relayed for others.
func (p *parts) close() error { return errors.Join(p.relay.Close(), p.engine.Close()) }

// Secret returns the secret that authenticates sessions with neighbours; nil if relaying is off.
func (o *Overlay) Secret() *handshake.Secret {
	if o == nil {
		return nil
	}
	return &o.secret
}

// Relaying returns the statistics of the circuits that this process relays for others.
func (o *Overlay) Relaying() relay.Stats {
	if p := o.running(); p != nil {
		return p.relay.Stats()
	}
	return relay.Stats{}
}

// RelayChanged returns a channel that holds a token after a relayed circuit has been set up or has ended. It is for one
// reader.
func (o *Overlay) RelayChanged() <-chan struct{} {
	if o == nil {
		return nil
	}
	return o.changed
}

// noteChange puts a token into the channel of RelayChanged.
func (o *Overlay) noteChange() {
	select {
	case o.changed <- struct{}{}:
	default: // the reader of the token in the channel will see this change too
	}
}

// refuse returns the reason why this process relays no new circuits, or nil.
func (o *Overlay) refuse() error {
	switch {
	case o.retired.Load():
		return errRetired
	case o.cfg.Observes:
		return errObserves
	}
	return nil
}

var (
	errRetired  = errors.New("this relay is about to end")
	errObserves = errors.New("this process only examines the mesh, and ends soon: it does not relay")
)

// Retire stops this process from relaying new circuits: it stops answering neighbour discovery, and refuses requests
// for circuits. Existing circuits continue until their endpoints close them, or until Close.
func (o *Overlay) Retire() error {
	if o == nil {
		return nil
	}
	o.retired.Store(true)
	return o.StopDiscovery()
}

// StopDiscovery stops neighbour discovery, so that other nodes do not choose this one as a relay any more.
func (o *Overlay) StopDiscovery() error {
	if p := o.running(); p != nil {
		return p.discovery.Close()
	}
	return nil
}

// Close ends all circuits, those of this process and those relayed for others. StopDiscovery must have been called.
func (o *Overlay) Close() error {
	if p := o.running(); p != nil {
		return p.close()
	}
	return nil
}
